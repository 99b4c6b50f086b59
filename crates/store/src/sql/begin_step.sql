-- I4, I5. May this step act? One statement that locks the task row: owner still current,
-- nothing told it to stop, not expired. The row lock is taken before a cancel can be
-- acknowledged or after it was seen. Not allowed = stop (or lost). The step is journaled as
-- started before it acts. Repeatable by the same act's token; a repeat that arrives after the
-- step has finished (its connection was slow to die) opens nothing.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
      AND stop_requested_at IS NULL AND (expires_at IS NULL OR expires_at > now())
      AND (open_step IS NULL OR open_step = $4)
    FOR NO KEY UPDATE
), s AS (
    INSERT INTO steps (task_id, key, seq, attempt, claim_token, act, state, idempotent, undo, undo_idempotent, started_at)
    SELECT id, $4, $5, $2, $3, $6, 'started', $7, $8, $9, clock_timestamp() FROM t
    ON CONFLICT (task_id, key) DO UPDATE SET
        attempt = $2, claim_token = $3, act = $6, undo = $8, undo_idempotent = $9
        WHERE steps.state = 'started' AND (steps.act = $6 OR steps.idempotent)
    RETURNING task_id
), o AS (
    UPDATE tasks SET open_step = $4, journaled = true FROM s WHERE tasks.id = s.task_id
)
SELECT (SELECT count(*) FROM t) AS allowed, (SELECT count(*) FROM s) AS begun

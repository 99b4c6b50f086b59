-- The undo did not happen, or may be repeated: due again after the backoff, which waits in
-- Postgres and not in a worker. Fenced. No row: repeated.sql tells a repeat from a loss.
WITH mine AS (
    SELECT claimed_at FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3
), t AS (
    UPDATE tasks SET
        lease_until = NULL, claimed_at = NULL, run_at = now() + $6::bigint * interval '1 millisecond', hinted_at = NULL, hint_count = 0
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'undoing' AND lease_until IS NOT NULL
    RETURNING id, attempt, claimed_by
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how, reason)
    SELECT t.id, t.attempt, t.claimed_by, true, mine.claimed_at, now(), 'retried', $7 FROM t, mine
    ON CONFLICT DO NOTHING
)
UPDATE steps SET undo_state = 'pending', undo_error = $5
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.undo_state IN ('pending', 'started')

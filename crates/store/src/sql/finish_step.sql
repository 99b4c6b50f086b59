-- I3, I4. The step acted: keep its output, so that no replay acts again, and what undoes it, in
-- case the task does not complete. Allowed after a stop was requested (it did happen).
-- Repeatable by the same act's token.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
    FOR NO KEY UPDATE
), s AS (
    UPDATE steps SET
        state = 'finished', output = $6, finished_at = coalesce(steps.finished_at, now()),
        undo_state = CASE WHEN steps.undo IS NOT NULL THEN 'pending' END
    FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.act = $5
    RETURNING steps.task_id, steps.undo IS NOT NULL AS undoable
)
UPDATE tasks SET open_step = nullif(tasks.open_step, $4), has_undo = tasks.has_undo OR s.undoable
FROM s WHERE tasks.id = s.task_id

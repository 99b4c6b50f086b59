-- Given up for good: said in the task's error, and the other undos go on. Fenced, repeatable.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'undoing'
    FOR NO KEY UPDATE
)
UPDATE steps SET undo_state = 'failed', undo_error = $5
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.undo_state IN ('pending', 'started', 'failed')

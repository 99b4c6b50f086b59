-- I3, I4. Undone: no later try undoes it again. Fenced, repeatable.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'undoing'
    FOR NO KEY UPDATE
)
UPDATE steps SET undo_state = 'finished', undo_error = NULL
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.undo_state IN ('started', 'finished')

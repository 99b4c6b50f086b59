-- I3, I4. Journaled before it acts, like a step. Fenced; the number of the try makes a repeat
-- harmless.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'undoing' AND lease_until IS NOT NULL
    FOR NO KEY UPDATE
)
UPDATE steps SET undo_state = 'started', undo_tries = $5
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.undo_state IN ('pending', 'started')

-- The undo did not happen, or may be repeated: due again after the backoff, which waits in
-- Postgres and not in a worker. Fenced. No row: repeated.sql tells a repeat from a loss.
WITH t AS (
    UPDATE tasks SET
        lease_until = NULL, run_at = now() + $6::bigint * interval '1 millisecond', hinted_at = NULL, hint_count = 0
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'undoing' AND lease_until IS NOT NULL
    RETURNING id
)
UPDATE steps SET undo_state = 'pending', undo_error = $5
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.undo_state IN ('pending', 'started')

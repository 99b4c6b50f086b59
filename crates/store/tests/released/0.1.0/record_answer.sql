-- A question answered before it was asked (the answer came with the call): journaled like
-- any other, so that a replay finds it. Repeatable by the same token.
WITH t AS (
    UPDATE tasks SET journaled = true
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running' AND stop_requested_at IS NULL
    RETURNING id
), i AS (
    INSERT INTO inputs (task_id, key, seq, attempt, request, response, asked_at, deadline_at, answered_at, answered_by)
    SELECT id, $4, $5, $2, $6, $7, now(), now(), now(), $8 FROM t
    ON CONFLICT (task_id, key) DO NOTHING
)
SELECT id FROM t

-- I3, I5. An address for a result that may come later, before anybody is told of it; the same one
-- again for every later attempt. Not for a task that stops. Repeatable by the same token.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
      AND stop_requested_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    FOR NO KEY UPDATE
), c AS (
    INSERT INTO callbacks (task_id, key, seq, attempt, signed_by, opened_at, expires_at, step, step_output)
    SELECT id, $4, $5, $2, $6, now(),
        date_trunc('milliseconds', now()) + $7::bigint * interval '1 millisecond', $8, $9 FROM t
    ON CONFLICT (task_id, key) DO UPDATE SET attempt = $2
    RETURNING task_id, signed_by, expires_at, received_at
), j AS (
    UPDATE tasks SET journaled = true FROM c WHERE tasks.id = c.task_id
)
SELECT signed_by, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, received_at IS NOT NULL AS received
FROM c

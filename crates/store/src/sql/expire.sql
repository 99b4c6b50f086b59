-- I11. Live tasks whose TTL ran out are told to stop; the first reason wins. What is being
-- undone has ended already, and undoing it is not cut short.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE expires_at <= now() AND phase <> 'undoing' AND stop_requested_at IS NULL
      AND ($2::uuid IS NULL OR id = $2)
    ORDER BY expires_at LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks t SET stop_requested_at = now(), stop_reason = 'expired'
FROM due WHERE t.id = due.id
RETURNING t.id, t.tool, t.status, t.phase, (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

-- Nobody has the id and nobody waits: a killed gateway's orphans, and callers that never
-- came back with their key.
WITH due AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE phase IN ('queued', 'running', 'parked') AND handed_out_at IS NULL AND held_until < now() AND stop_requested_at IS NULL
      AND ($2::uuid IS NULL OR id = $2)
    ORDER BY id LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tasks t SET stop_requested_at = now(), stop_reason = 'abandoned'
FROM due WHERE t.id = due.id
RETURNING t.id

-- A service says how its work goes, at the address where its result is, or will be, awaited. Nothing but what a
-- client reads changes, four times a second at most: what comes `early` is not written unless $5 insists.
-- No row: the address is not open (any more).
WITH c AS (
    SELECT t.id, t.status_message IS DISTINCT FROM $3 AS news,
        NOT $5::boolean AND t.last_updated_at > now() - interval '250 milliseconds' AS early
    FROM callbacks c JOIN tasks t ON t.id = c.task_id
    WHERE c.task_id = $1 AND c.key = $2 AND (extract(epoch FROM c.expires_at) * 1000)::bigint = $4
      AND c.received_at IS NULL AND c.expires_at > now()
      AND t.phase IN ('queued', 'running') AND t.stop_requested_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > now())
), u AS (
    UPDATE tasks SET status_message = $3,
        last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
    FROM c WHERE tasks.id = c.id AND c.news AND NOT c.early AND tasks.phase IN ('queued', 'running') AND tasks.stop_requested_at IS NULL
    RETURNING tasks.id
)
SELECT EXISTS (SELECT FROM u) AS told, news AND early AS early FROM c

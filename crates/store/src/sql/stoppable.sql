-- Tasks that settle_stopped.sql would end now: told to stop, or out of tries, and nothing
-- runs. A plain read; the ending itself checks again under the row lock.
SELECT id FROM tasks
WHERE phase IN ('queued', 'parked', 'running') AND (
    (stop_requested_at IS NOT NULL AND phase <> 'running')
    OR (phase = 'running' AND lease_until < now()
        AND (stop_requested_at IS NOT NULL OR lost_fails OR tries + 1 >= tries_max)
        AND $2::bigint >= $3::bigint AND pg_postmaster_start_time() < now() - $3::bigint * interval '1 millisecond'))
  AND id <> ALL($4::uuid[])
ORDER BY id LIMIT $1

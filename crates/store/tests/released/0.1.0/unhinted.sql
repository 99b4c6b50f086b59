-- I2. Jobs that Redis does not know of: never hinted, hinted under an epoch that is gone
-- (Redis lost its data), or hinted so long ago that the hint may be lost. The wait doubles
-- with every hint, because a backlog is not a loss. Also jobs whose lease ran out. Found by
-- a plain read and claimed like any other job: a hint too many does no harm.
SELECT t.id, t.tool, CASE WHEN t.journaled THEN t.tool_version ELSE coalesce(c.version, t.tool_version) END AS version
FROM tasks t LEFT JOIN tools c ON c.name = t.tool AND c.current
WHERE t.phase IN ('queued', 'running') AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
  AND ($5::text[] IS NULL OR t.tool = ANY($5::text[]))
  AND (t.hinted_at IS NULL OR t.hint_epoch IS NULL OR t.hint_epoch <> ALL($1::text[])
       OR t.hinted_at < now() - $2::bigint * power(2, least(t.hint_count, 10)) * interval '1 millisecond'
       OR (t.phase = 'running' AND t.hinted_at < t.lease_until))
  AND ((t.phase = 'queued' AND t.run_at <= now())
       OR (t.phase = 'running' AND t.lease_until < now() AND t.tries + 1 < t.tries_max
           AND $3::bigint >= $4::bigint AND pg_postmaster_start_time() < now() - $4::bigint * interval '1 millisecond'))
ORDER BY t.priority DESC, t.id
LIMIT $6

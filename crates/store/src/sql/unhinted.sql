-- I2. Jobs that Redis does not know of: never hinted, hinted under an epoch that is gone
-- (Redis lost its data), or hinted so long ago that the hint may be lost. The wait doubles
-- with every hint, because a backlog is not a loss. Also jobs whose lease ran out, and jobs
-- hinted before another version of their tool became current: nobody may read the old one's
-- stream any more, however long a backlog has waited there. Found by a plain read and claimed like any other job: a hint too many does no harm. A worker asks for
-- the tools and versions that it serves, as it reads only their streams: so that it takes no job
-- of a newer version, and what it may not claim does not fill the list: so do no jobs of a tool whose jobs are paused; what was
-- hinted before the end of a pause is hinted again.
SELECT t.id, t.tool, t.attempt, CASE WHEN t.journaled THEN t.tool_version ELSE coalesce(c.version, t.tool_version) END AS version
FROM tasks t LEFT JOIN tools c ON c.name = t.tool AND c.current
    LEFT JOIN tool_pauses p ON p.tool = t.tool
WHERE t.phase IN ('queued', 'running', 'undoing')
  AND (t.phase = 'undoing' OR (t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())))
  AND (t.phase = 'undoing' OR p.jobs IS NOT TRUE)
  AND ($5::text[] IS NULL OR EXISTS (SELECT FROM unnest($5::text[], $7::int[]) AS s(tool, version)
       WHERE s.tool = t.tool
         AND s.version = CASE WHEN t.journaled THEN t.tool_version ELSE coalesce(c.version, t.tool_version) END))
  AND (t.hinted_at IS NULL OR t.hint_epoch IS NULL OR t.hint_epoch <> ALL($1::text[])
       OR t.hinted_at < now() - $2::bigint * power(2, least(t.hint_count, 10)) * interval '1 millisecond'
       OR (t.phase <> 'queued' AND t.hinted_at < t.lease_until)
       OR (NOT t.journaled AND c.version <> t.tool_version AND t.hinted_at < c.changed_at)
       OR t.hinted_at < p.jobs_resumed_at)
  AND ((t.phase = 'queued' AND t.run_at <= now())
       OR (t.phase = 'undoing' AND t.lease_until IS NULL AND t.run_at <= now())
       OR (t.phase <> 'queued' AND t.lease_until < now()
           AND (t.phase = 'undoing' OR (t.tries + 1 < t.tries_max AND NOT t.lost_fails))
           AND $3::bigint >= $4::bigint AND pg_postmaster_start_time() < now() - $4::bigint * interval '1 millisecond'))
ORDER BY t.priority DESC, t.id
LIMIT $6

-- I2. Jobs that Redis does not know of: never hinted, hinted under an epoch that is gone
-- (Redis lost its data), or hinted so long ago that the hint may be lost. The wait doubles
-- with every hint, because a backlog is not a loss. Also jobs whose lease ran out, and jobs
-- hinted before another version of their tool became current: nobody may read the old one's
-- stream any more, however long a backlog has waited there. Found by a plain read and claimed like any other job: a hint too many does no harm. A worker asks for
-- the tools and versions that it serves, as it reads only their streams: so that it takes no job
-- of a newer version, and what it may not claim does not fill the list: so do no jobs of a tool whose jobs are paused; what was
-- hinted before the end of a pause is hinted again. Jobs that wait for a slot of a limited tool are not lost:
-- whoever ends one hints the next. Should that be lost, as many are found here as have a slot.
WITH limited AS MATERIALIZED (
    -- By the policy of the current version.
    SELECT p.tool, (p.policy ->> 'concurrency')::bigint AS slots,
        (p.policy ->> 'concurrency_per_principal')::bigint AS slots_each
    FROM (SELECT c.name AS tool, CASE WHEN position('\u0000' IN convert_from(c.spec, 'UTF8')) = 0
              THEN convert_from(c.spec, 'UTF8')::json -> 'policy' END AS policy
          FROM tools c WHERE c.current) p
    WHERE coalesce(p.policy ->> 'concurrency', p.policy ->> 'concurrency_per_principal') IS NOT NULL
), running AS MATERIALIZED (
    SELECT r.tool, hashtextextended(r.issuer || ' ' || r.subject, 0) AS principal, count(*) AS jobs
    FROM tasks r JOIN limited l ON l.tool = r.tool
    WHERE r.phase = 'running' AND NOT (r.lease_until < now() AND $3::bigint >= $4::bigint
        AND pg_postmaster_start_time() < now() - $4::bigint * interval '1 millisecond')
    GROUP BY 1, 2
), found AS (
SELECT t.id, t.tool, t.attempt, t.priority, t.run_at, l.slots, l.slots_each, l.tool IS NOT NULL AND t.phase <> 'undoing' AS limited,
    hashtextextended(t.issuer || ' ' || t.subject, 0) AS principal,
    CASE WHEN t.journaled THEN t.tool_version ELSE coalesce(c.version, t.tool_version) END AS version
FROM tasks t LEFT JOIN tools c ON c.name = t.tool AND c.current
    LEFT JOIN tool_pauses p ON p.tool = t.tool LEFT JOIN limited l ON l.tool = t.tool
WHERE t.phase IN ('queued', 'running', 'undoing')
  AND (t.phase = 'undoing' OR (t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())))
  AND (t.phase = 'undoing' OR p.jobs IS NOT TRUE)
  AND ($5::text[] IS NULL OR EXISTS (SELECT FROM unnest($5::text[], $7::int[]) AS s(tool, version)
       WHERE s.tool = t.tool
         AND s.version = CASE WHEN t.journaled THEN t.tool_version ELSE coalesce(c.version, t.tool_version) END))
  AND (t.hinted_at IS NULL OR t.hint_epoch IS NULL OR t.hint_epoch <> ALL($1::text[])
       OR t.hinted_at < now() - $2::bigint * power(2, least(t.hint_count, 10)) * interval '1 millisecond'
       -- It waited for a slot, and its hint is used up.
       OR (l.tool IS NOT NULL AND t.hinted_at < now() - $2::bigint * interval '1 millisecond')
       OR (t.phase <> 'queued' AND t.hinted_at < t.lease_until)
       OR (NOT t.journaled AND c.version <> t.tool_version AND t.hinted_at < c.changed_at)
       OR t.hinted_at < p.jobs_resumed_at)
  AND ((t.phase = 'queued' AND t.run_at <= now())
       OR (t.phase = 'undoing' AND t.lease_until IS NULL AND t.run_at <= now())
       OR (t.phase <> 'queued' AND t.lease_until < now()
           AND (t.phase = 'undoing' OR (t.tries + 1 < t.tries_max AND NOT t.lost_fails))
           AND $3::bigint >= $4::bigint AND pg_postmaster_start_time() < now() - $4::bigint * interval '1 millisecond'))
), turns AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.tool, f.principal ORDER BY f.priority DESC, f.run_at, f.id) AS of_principal
    FROM found f WHERE f.limited
), slotted AS (
    SELECT n.*, row_number() OVER (PARTITION BY n.tool ORDER BY n.priority DESC, n.run_at, n.id) AS of_tool
    FROM turns n
    WHERE n.slots_each IS NULL OR n.of_principal <= n.slots_each
        - coalesce((SELECT r.jobs FROM running r WHERE r.tool = n.tool AND r.principal = n.principal), 0)
)
SELECT x.id, x.tool, x.attempt, x.version, x.limited FROM (
    SELECT f.id, f.tool, f.attempt, f.version, f.priority, false AS limited FROM found f WHERE NOT f.limited
    UNION ALL
    SELECT s.id, s.tool, s.attempt, s.version, s.priority, true FROM slotted s
    WHERE s.slots IS NULL OR s.of_tool <= s.slots - coalesce((SELECT sum(r.jobs) FROM running r WHERE r.tool = s.tool), 0)
) x
ORDER BY x.priority DESC, x.id
LIMIT $6

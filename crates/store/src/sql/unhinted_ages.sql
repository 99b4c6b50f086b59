-- Due jobs by tool of which Redis, as it is now ($1: its epochs), has not been told, and for how long
-- (ms) the oldest has been due. While reconcile works this is seconds. Not those whose tool's jobs
-- are paused: they get no hint. Of a limited tool, hints are given as slots come free: there it is an
-- omission if there is a slot, and none of its jobs has a hint.
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
    WHERE r.phase = 'running' AND r.lease_until >= now()
    GROUP BY 1, 2
)
SELECT t.tool, count(*) AS jobs, max((extract(epoch FROM now() - t.run_at) * 1000)::bigint) AS waited_ms
FROM tasks t LEFT JOIN tool_pauses p ON p.tool = t.tool LEFT JOIN limited l ON l.tool = t.tool
WHERE t.phase IN ('queued', 'undoing') AND t.lease_until IS NULL AND t.run_at <= now()
  AND (t.phase = 'undoing' OR (t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
       AND p.jobs IS NOT TRUE))
  AND (t.hinted_at IS NULL OR t.hint_epoch IS NULL OR t.hint_epoch <> ALL($1::text[]))
  AND (l.tool IS NULL OR t.phase = 'undoing'
    OR (coalesce(l.slots > (SELECT sum(r.jobs) FROM running r WHERE r.tool = t.tool), true)
      AND coalesce(l.slots_each > (SELECT r.jobs FROM running r WHERE r.tool = t.tool
          AND r.principal = hashtextextended(t.issuer || ' ' || t.subject, 0)), true)
      AND NOT EXISTS (SELECT FROM tasks h WHERE h.phase = 'queued' AND h.tool = t.tool AND h.hint_epoch = ANY($1::text[]))))
GROUP BY t.tool

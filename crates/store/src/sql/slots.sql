-- For operators: limited tools, how many of their jobs run, how many are due, and how many of those have a
-- slot now; the others wait for one. `waited_ms`: of the first that has a slot, or would if one were free.
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
), due AS MATERIALIZED (
    SELECT t.tool, hashtextextended(t.issuer || ' ' || t.subject, 0) AS principal, count(*) AS jobs, min(t.run_at) AS first_at
    FROM tasks t JOIN limited l ON l.tool = t.tool
    WHERE t.phase = 'queued' AND t.run_at <= now() AND t.stop_requested_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > now())
    GROUP BY 1, 2
)
SELECT l.tool, l.slots, l.slots_each, n.running, d.due,
    greatest(least(d.able, coalesce(l.slots - n.running, d.able)), 0)::bigint AS able, d.waited_ms
FROM limited l CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.jobs), 0)::bigint AS running FROM running r WHERE r.tool = l.tool
) n CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.jobs), 0)::bigint AS due,
        coalesce(sum(greatest(least(d.jobs, coalesce(l.slots_each - coalesce(r.jobs, 0), d.jobs)), 0)), 0)::bigint AS able,
        coalesce(max((extract(epoch FROM now() - d.first_at) * 1000)::bigint)
            FILTER (WHERE coalesce(l.slots_each > r.jobs, true)), 0)::bigint AS waited_ms
    FROM due d LEFT JOIN running r ON r.tool = d.tool AND r.principal = d.principal WHERE d.tool = l.tool
) d
ORDER BY l.tool COLLATE "C"

-- For operators: every version of every tool and of every provider's jobs, who serves it, and what is
-- paused.
WITH served AS (
    SELECT name, version, current, listed, changed_at, last_seen_at, run_ms, change_ms FROM tools
    UNION ALL
    SELECT 'provider/' || name, version, row_number() OVER (PARTITION BY name ORDER BY listed DESC,
               last_seen_at > now() - $1::bigint * interval '1 millisecond' DESC,
               CASE WHEN last_seen_at > now() - $1::bigint * interval '1 millisecond' THEN version END DESC,
               last_seen_at DESC) = 1,
           listed, changed_at, last_seen_at, NULL, NULL FROM providers
)
SELECT t.name, t.version, t.current, t.listed, t.changed_at, t.last_seen_at,
       (extract(epoch FROM now() - t.last_seen_at))::bigint AS seen_s,
       t.run_ms, t.change_ms, coalesce(p.calls, false) AS calls_paused, coalesce(p.jobs, false) AS jobs_paused,
       p.calls_since, p.jobs_since, p.reason, p.changed_by,
       (SELECT count(*) FROM workers w WHERE t.name || ' ' || t.version = ANY(w.tools)
            AND w.seen_at > now() - $1::bigint * interval '1 millisecond') AS workers
FROM served t LEFT JOIN tool_pauses p ON p.tool = t.name
ORDER BY t.name COLLATE "C", t.version DESC

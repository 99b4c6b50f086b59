-- How long the first due job of each principal in each tool has waited (ms), and whether another of its
-- jobs runs meanwhile: what a new call must expect, where principals take turns. One step of the index a
-- principal, however many jobs it has; 2,000 of them at most. What is not due is passed within the index.
WITH RECURSIVE firsts AS (
    (SELECT t.queue, t.tool, t.priority, hashtextextended(t.issuer || ' ' || t.subject, 0) AS principal, t.run_at, t.issuer, t.subject
     FROM tasks t WHERE t.phase = 'queued' AND NOT t.asleep AND t.run_at <= now()
     ORDER BY t.queue, t.tool, t.priority, hashtextextended(t.issuer || ' ' || t.subject, 0), t.run_at LIMIT 1)
    UNION ALL
    SELECT x.* FROM firsts f CROSS JOIN LATERAL (
        SELECT t.queue, t.tool, t.priority, hashtextextended(t.issuer || ' ' || t.subject, 0) AS principal, t.run_at, t.issuer, t.subject
        FROM tasks t WHERE t.phase = 'queued' AND NOT t.asleep AND t.run_at <= now()
          AND (t.queue, t.tool, t.priority, hashtextextended(t.issuer || ' ' || t.subject, 0)) > (f.queue, f.tool, f.priority, f.principal)
        ORDER BY t.queue, t.tool, t.priority, hashtextextended(t.issuer || ' ' || t.subject, 0), t.run_at LIMIT 1) x
)
SELECT w.tool, w.issuer, w.subject, (extract(epoch FROM now() - w.run_at) * 1000)::bigint AS waited_ms,
    EXISTS (SELECT FROM tasks r WHERE r.phase = 'running' AND r.tool = w.tool
        AND hashtextextended(r.issuer || ' ' || r.subject, 0) = w.principal) AS runs
FROM (SELECT * FROM firsts LIMIT 2000) w

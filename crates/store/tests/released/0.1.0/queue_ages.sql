-- How long the oldest due job of each tool has waited (ms): what a new call must expect at
-- least. Looks at the oldest jobs only, so a long queue costs no more than a short one.
SELECT tool, max(waited_ms) AS waited_ms, count(*) AS jobs FROM (
    SELECT tool, (extract(epoch FROM now() - run_at) * 1000)::bigint AS waited_ms
    FROM tasks WHERE phase = 'queued' AND run_at <= now() ORDER BY id LIMIT 2000) q
GROUP BY tool

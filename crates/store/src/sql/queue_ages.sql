-- Due jobs by tool, and how long the oldest of them has waited (ms). One pass over what is queued, for metrics;
-- what a single call must expect is queue_waits.sql.
SELECT tool, max((extract(epoch FROM now() - run_at) * 1000)::bigint) AS waited_ms, count(*) AS jobs
FROM tasks WHERE phase = 'queued' AND run_at <= now()
GROUP BY tool

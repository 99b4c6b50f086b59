-- Tasks by tool that wait for a service, and for how long (ms) the first of them has.
SELECT t.tool, count(*) AS jobs, max((extract(epoch FROM now() - c.waiting_since) * 1000)::bigint) AS waited_ms
FROM callbacks c JOIN tasks t ON t.id = c.task_id
WHERE c.waiting_since IS NOT NULL AND c.received_at IS NULL AND t.phase = 'queued' AND t.stop_requested_at IS NULL
GROUP BY t.tool

-- For operators: live tasks by queue, priority, tool and version. Ages in seconds.
SELECT queue, priority, tool, tool_version,
       count(*) FILTER (WHERE phase = 'queued') AS queued,
       count(*) FILTER (WHERE phase = 'queued' AND run_at <= now()) AS due,
       count(*) FILTER (WHERE phase = 'queued' AND run_at > now()) AS backing_off,
       count(*) FILTER (WHERE phase = 'running') AS running,
       count(*) FILTER (WHERE phase = 'parked') AS parked,
       count(*) FILTER (WHERE phase = 'undoing') AS undoing,
       count(*) FILTER (WHERE stop_requested_at IS NOT NULL) AS stopping,
       (extract(epoch FROM now() - min(run_at) FILTER (WHERE phase = 'queued' AND run_at <= now())))::bigint AS oldest_due_s,
       (extract(epoch FROM now() - min(created_at)))::bigint AS oldest_s
FROM tasks WHERE phase IS NOT NULL
GROUP BY queue, priority, tool, tool_version
ORDER BY queue COLLATE "C", priority DESC, tool COLLATE "C", tool_version

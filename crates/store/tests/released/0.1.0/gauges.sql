-- Live tasks by tool and phase, and the age of the oldest (ms).
SELECT tool, phase, count(*) AS tasks,
       (extract(epoch FROM now() - min(created_at)) * 1000)::bigint AS oldest_ms
FROM tasks WHERE phase IS NOT NULL GROUP BY tool, phase

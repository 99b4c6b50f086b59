-- For operators: what was said of a task, and to whom.
SELECT a.kind, a.reason, a.since, a.raised_at, a.resolved_at, d.receiver, d.state, d.tries, d.delivered_at,
       d.resolved_at AS told_resolved_at, d.last_error
FROM alerts a LEFT JOIN alert_deliveries d ON d.alert_id = a.id
WHERE a.task_id = $1 ORDER BY a.raised_at, a.kind, d.receiver

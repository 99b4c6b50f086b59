-- A new task like a finished one (terminal is final): same owner, tool and arguments, without its key,
-- which stays the old one's. By the rules of the tool as it is now ($3 to $9, $11 and $12), or those of the old
-- task where the tool is gone.
INSERT INTO tasks (
    id, issuer, subject, tenant, tool, tool_version, queue, priority, arguments, arguments_encoding,
    arguments_digest, client_capabilities, offered_responses, trace_context, status_message,
    created_at, last_updated_at, expires_at, ttl_ms_max, phase, run_at, tries_max, work_ms_max,
    held_until, handed_out_at, lost_fails, alert_after_ms)
SELECT $2, o.issuer, o.subject, o.tenant, o.tool, coalesce($3, o.tool_version), coalesce($11, o.queue), coalesce($12, o.priority), o.arguments,
    o.arguments_encoding, o.arguments_digest, o.client_capabilities, o.offered_responses, o.trace_context, $10,
    n.at, n.at, n.at + coalesce($4::bigint, (extract(epoch FROM o.expires_at - o.created_at) * 1000)::bigint) * interval '1 millisecond',
    CASE WHEN $3 IS NULL THEN o.ttl_ms_max ELSE $5::bigint END, 'queued', now(), coalesce($6, o.tries_max), coalesce($7, o.work_ms_max),
    now(), now(), coalesce($8, o.lost_fails), CASE WHEN $3 IS NULL THEN o.alert_after_ms ELSE $9::bigint END
FROM tasks o, (SELECT date_trunc('milliseconds', now()) AS at) n
WHERE o.id = $1
ON CONFLICT (id) DO NOTHING
RETURNING tool, tool_version

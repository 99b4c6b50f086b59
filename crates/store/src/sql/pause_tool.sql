-- An operator takes a tool, or a provider's jobs, out of service: for new calls ($2), for new jobs ($3), or both. What is
-- paused already stays so.
INSERT INTO tool_pauses (tool, calls, jobs, calls_since, jobs_since, reason, changed_by)
SELECT $1, $2, $3, CASE WHEN $2 THEN now() END, CASE WHEN $3 THEN now() END, $4, $5
WHERE EXISTS (SELECT FROM tools WHERE name = $1)
   OR EXISTS (SELECT FROM providers WHERE 'provider/' || name = $1)
ON CONFLICT (tool) DO UPDATE SET
    calls = tool_pauses.calls OR $2, jobs = tool_pauses.jobs OR $3,
    calls_since = CASE WHEN $2 AND NOT tool_pauses.calls THEN now() ELSE tool_pauses.calls_since END,
    jobs_since = CASE WHEN $3 AND NOT tool_pauses.jobs THEN now() ELSE tool_pauses.jobs_since END,
    reason = coalesce($4, tool_pauses.reason), changed_by = $5
RETURNING calls, jobs

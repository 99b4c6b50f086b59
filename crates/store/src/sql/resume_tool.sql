-- An operator puts a tool back into service, for calls ($2), jobs ($3), or both.
UPDATE tool_pauses SET
    calls = calls AND NOT $2, jobs = jobs AND NOT $3,
    calls_since = CASE WHEN $2 THEN NULL ELSE calls_since END,
    jobs_since = CASE WHEN $3 THEN NULL ELSE jobs_since END,
    jobs_resumed_at = CASE WHEN jobs AND $3 THEN now() ELSE jobs_resumed_at END,
    reason = CASE WHEN (calls AND NOT $2) OR (jobs AND NOT $3) THEN reason END, changed_by = $4
WHERE tool = $1 AND ((calls AND $2) OR (jobs AND $3))
RETURNING calls, jobs

-- I3, I6. The result, once. Fenced; not while a step is open. A result that races with a
-- cancel wins if it comes first, as MCP allows. No row: repeated.sql tells a repeat from a loss.
UPDATE tasks SET
    status = 'completed', result = $4, is_error = $6, phase = NULL, lease_until = NULL, finished_at = now(),
    last_error = NULL, status_message = NULL, work_ms_used = work_ms_used + $5,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running' AND open_step IS NULL
RETURNING (extract(epoch FROM now() - created_at) * 1000)::bigint AS age_ms

-- I3, I6. A JSON-RPC error instead of a result, once. Fenced. No row: repeated.sql tells a
-- repeat from a loss.
UPDATE tasks SET
    status = 'failed', error = $4, status_message = $5, phase = NULL, lease_until = NULL,
    finished_at = now(), work_ms_used = work_ms_used + $6,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'

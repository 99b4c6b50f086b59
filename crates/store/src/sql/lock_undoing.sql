-- The task whose undoing may be over; whoever comes second waits here. Its owner names attempt
-- and token; cron (both NULL) may only end what nobody owns.
SELECT pending_status, error, stop_reason, tool, tool_version, data_key, sealed_by,
       (extract(epoch FROM now() - created_at) * 1000)::bigint AS age_ms
FROM tasks
WHERE id = $1 AND phase = 'undoing'
  AND (($2::int IS NOT NULL AND attempt = $2 AND claim_token = $3::uuid)
    OR ($2::int IS NULL AND (lease_until IS NULL OR lease_until < now())))
FOR NO KEY UPDATE

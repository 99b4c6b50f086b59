-- What raise_unfetched.sql would judge, but for those tried before: after one of a batch was refused.
SELECT id FROM tasks
WHERE phase IS NULL AND alerted_at IS NULL AND (status = 'failed' OR is_error)
  AND (open_step IS NOT NULL OR first_fetched_at IS NOT NULL
    OR finished_at + coalesce(alert_after_ms, $2::bigint) * interval '1 millisecond' <= now()
    OR expires_at <= now() + interval '1 minute')
  AND id <> ALL($3::uuid[])
ORDER BY finished_at LIMIT $1

-- What purge.sql would purge, but for those tried before: after one of a batch was refused.
SELECT id FROM tasks
WHERE expires_at <= now() AND phase IS NULL
  AND (alerted_at IS NOT NULL OR first_fetched_at IS NOT NULL OR NOT (status = 'failed' OR is_error))
  AND id <> ALL($2::uuid[])
ORDER BY expires_at LIMIT $1

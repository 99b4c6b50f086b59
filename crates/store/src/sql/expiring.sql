-- What expire.sql would tell to stop, but for those tried before: after one of a batch was refused.
SELECT id FROM tasks
WHERE expires_at <= now() AND phase <> 'undoing' AND stop_requested_at IS NULL AND id <> ALL($2::uuid[])
ORDER BY expires_at LIMIT $1

-- What end_holds.sql would tell to stop, but for those tried before: after one of a batch was refused.
SELECT id FROM tasks
WHERE phase IN ('queued', 'running', 'parked') AND handed_out_at IS NULL AND held_until < now() AND stop_requested_at IS NULL
  AND id <> ALL($2::uuid[])
ORDER BY id LIMIT $1

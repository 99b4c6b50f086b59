-- The way to the lock of its row for whoever proved, by a signature of ours, that the task sent him
-- here. `stopping` as in lock_task.sql.
SELECT phase, tool, tool_version, data_key, sealed_by,
       stop_requested_at IS NOT NULL OR coalesce(expires_at <= clock_timestamp(), false) AS stopping
FROM tasks WHERE id = $1 FOR NO KEY UPDATE

-- Cron's way to the same lock: parked tasks with a question past its deadline. A task that
-- somebody is answering right now is skipped, and looked at again next time.
SELECT id, tool, tool_version FROM tasks
WHERE phase = 'parked' AND input_deadline_at <= now() AND stop_requested_at IS NULL AND id > $1
ORDER BY id LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED

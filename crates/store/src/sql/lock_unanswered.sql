-- Cron's way to the same lock: a parked task with a question past its deadline. A task that somebody
-- is answering right now is skipped, and looked at again next time.
SELECT id, data_key, sealed_by FROM tasks
WHERE id = $1 AND phase = 'parked' AND input_deadline_at <= now() AND stop_requested_at IS NULL
FOR NO KEY UPDATE SKIP LOCKED

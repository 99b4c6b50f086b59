-- The next parked task after $1 with a question past its deadline. A plain read; it is looked at again
-- under its lock.
SELECT id FROM tasks
WHERE phase = 'parked' AND input_deadline_at <= now() AND stop_requested_at IS NULL AND id > $1
ORDER BY id LIMIT 1

-- What is due now, and was not for long, takes its turn again: a callback's time or a backoff is over.
WITH due AS MATERIALIZED (
    SELECT t.id FROM tasks t WHERE t.phase = 'queued' AND t.asleep AND t.run_at <= now()
    ORDER BY t.run_at LIMIT 1000 FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET asleep = false FROM due WHERE t.id = due.id

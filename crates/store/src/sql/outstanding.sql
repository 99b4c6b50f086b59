-- The questions of a task that nobody answered yet, in the order in which they were asked.
-- Runs under the lock of lock_for_answer.sql or lock_unanswered.sql.
SELECT key, request, default_response, deadline_at <= now() AS overdue
FROM inputs WHERE task_id = $1 AND answered_at IS NULL
ORDER BY seq, key

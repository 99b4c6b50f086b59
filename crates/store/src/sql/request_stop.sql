-- The first reason wins. The time is that of the act, not of the transaction's begin: it may
-- have waited for the row while a step began. Runs under the lock of lock_task.sql, or alone for a task that the
-- caller's gateway created and never handed out.
UPDATE tasks SET stop_requested_at = clock_timestamp(), stop_reason = $2, stop_detail = $3
WHERE id = $1 AND coalesce(phase, '') <> '' AND stop_requested_at IS NULL
RETURNING phase

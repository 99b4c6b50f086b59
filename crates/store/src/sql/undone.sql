-- I6. Everything is undone, or given up by name: the end that waited becomes the task's own, once.
-- Runs under the lock of lock_undoing.sql.
UPDATE tasks SET
    status = $2, error = $3, status_message = $4, pending_status = NULL, undone_at = now(), finished_at = now(),
    phase = NULL, lease_until = NULL,
    expires_at = CASE WHEN expires_at <= now()
        THEN greatest(expires_at, date_trunc('milliseconds', now()) + $5::bigint * interval '1 millisecond')
        ELSE expires_at END,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND phase = 'undoing'

-- Nobody is left who could undo these steps; under the lock of lock_undoing.sql.
UPDATE steps SET undo_state = 'failed', undo_error = $2
WHERE task_id = $1 AND undo_state IN ('pending', 'started')

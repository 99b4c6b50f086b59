-- What became of the steps that declared an undo; under the lock of lock_undoing.sql.
SELECT key, undo_state, undo_error FROM steps
WHERE task_id = $1 AND undo_state IS NOT NULL ORDER BY seq DESC

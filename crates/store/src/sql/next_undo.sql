-- The last finished step that is still to be undone: effects are taken back in reverse order.
SELECT key, undo, output, undo_idempotent, undo_state = 'started' AS started, undo_tries
FROM steps WHERE task_id = $1 AND undo_state IN ('pending', 'started')
ORDER BY seq DESC LIMIT 1

-- For operators: the journal's steps without what they hold.
SELECT key, seq, attempt, state, idempotent, started_at, finished_at, undo_state, undo_tries, undo_error
FROM steps WHERE task_id = $1 ORDER BY seq, started_at

-- The key that a task's contents are sealed with.
SELECT data_key, sealed_by FROM tasks WHERE id = $1

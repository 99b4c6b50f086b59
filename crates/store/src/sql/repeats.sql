-- The last task that repeats this one. A statement of its own, after the row's lock was waited for.
SELECT new_task_id FROM audit_tasks WHERE task_id = $1 AND new_task_id IS NOT NULL ORDER BY at DESC LIMIT 1

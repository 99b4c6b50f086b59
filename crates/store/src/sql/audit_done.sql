-- Whether this command has dealt with this task before: its reply was lost then.
SELECT outcome, new_task_id FROM audit_tasks WHERE audit_id = $1 AND task_id = $2

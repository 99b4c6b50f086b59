-- What a command did to a task; in the transaction that did it.
INSERT INTO audit_tasks (audit_id, task_id, outcome, new_task_id, at) VALUES ($1, $2, $3, $4, now())
ON CONFLICT (audit_id, task_id) DO NOTHING

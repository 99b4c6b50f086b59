-- For operators: whose a task is.
SELECT issuer, subject, tenant FROM tasks WHERE id = $1

-- For operators: what is left of a purged task.
SELECT issuer, subject, tool, final_status, created_at, finished_at, expired_at, purge_at FROM tombstones WHERE task_id = $1

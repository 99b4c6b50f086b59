-- I8. What is left of a purged task, for its owner only.
SELECT final_status, expired_at FROM tombstones WHERE task_id = $1 AND issuer = $2 AND subject = $3

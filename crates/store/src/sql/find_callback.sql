-- A callback of a task whose row is locked. The clock and not the transaction's time, which may have
-- waited for the lock.
SELECT response, response_digest, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms,
       expires_at <= clock_timestamp() AS overdue
FROM callbacks WHERE task_id = $1 AND key = $2

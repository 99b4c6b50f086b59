-- For operators: what a task waits for of services, without what they sent.
SELECT key, seq, opened_at, expires_at, waiting_since, received_at, octet_length(response) AS bytes
FROM callbacks WHERE task_id = $1 ORDER BY seq

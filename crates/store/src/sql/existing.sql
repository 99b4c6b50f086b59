-- I7. The task that holds an idempotency key, and the digest of the arguments it was made
-- with. A statement of its own, after create.sql found the key taken: its snapshot is newer
-- than the winner's commit, which the insert waited for. Whoever wants the result reads the task.
SELECT k.arguments_digest AS key_digest, t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, NULL::bytea AS result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM idempotency_keys k JOIN tasks t ON t.id = k.task_id
WHERE k.issuer = $1 AND k.subject = $2 AND k.tool = $3 AND k.key = $4

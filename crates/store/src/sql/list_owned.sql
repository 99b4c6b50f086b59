-- I8. One principal's tasks, the newest first, as clients of MCP 2025-11-25 list them: those that they
-- may know, by a handle or a key. No payload. Pages go on before an id ($3).
SELECT id, tool, tool_version, status, status_message, created_at, last_updated_at,
       (extract(epoch FROM expires_at - created_at) * 1000)::bigint AS ttl_ms,
       NULL::bytea AS input_requests, NULL::bytea AS result, NULL::bytea AS error, phase, stop_reason, parked_for, rounds,
       first_fetched_at IS NOT NULL AS fetched, handed_out_at IS NOT NULL AS handed_out, idempotency_key IS NOT NULL AS keyed, data_key, sealed_by,
       coalesce(is_error, false) AS is_error
FROM tasks
WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
  AND issuer = $1 AND subject = $2 AND (handed_out_at IS NOT NULL OR idempotency_key IS NOT NULL)
  AND id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY id DESC LIMIT $4

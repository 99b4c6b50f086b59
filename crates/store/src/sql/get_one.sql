-- I8, I13. get.sql for one id: whoever is alone pays for no list. The arguments are the same arrays, of which the
-- first entries are taken.
SELECT 1::bigint AS n, CASE WHEN p.bytes > $4::bigint THEN p.bytes ELSE 0 END AS withheld,
       t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       CASE WHEN p.bytes <= $4 THEN t.input_requests END AS input_requests, CASE WHEN p.bytes <= $4 THEN t.result END AS result,
       CASE WHEN p.bytes <= $4 THEN t.error END AS error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM tasks t
CROSS JOIN LATERAL (SELECT coalesce(octet_length(t.result), 0) + coalesce(octet_length(t.error), 0)
    + coalesce(octet_length(t.input_requests), 0) AS bytes) p
WHERE t.id = ($1::uuid[])[1] AND t.issuer = ($2::text[])[1] AND t.subject = ($3::text[])[1]

-- I8, I13. Reads many tasks of many principals in one round trip. Ownership is decided here; a foreign id and
-- an unknown one do the same index probe and yield the same nothing, of which tombstones.sql tells more. That is asked
-- afterwards and not beside: a task becomes a tombstone and never the other way round, so one that is being purged is
-- seen as one or the other, never as neither.
-- A result, error or question longer than $4 bytes is not sent, but how long it is: 64 large ones would fill a process.
SELECT v.n, CASE WHEN p.bytes > $4::bigint THEN p.bytes ELSE 0 END AS withheld,
       t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       CASE WHEN p.bytes <= $4 THEN t.input_requests END AS input_requests, CASE WHEN p.bytes <= $4 THEN t.result END AS result,
       CASE WHEN p.bytes <= $4 THEN t.error END AS error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM (SELECT $1::uuid[] AS ids, $2::text[] AS issuers, $3::text[] AS subjects OFFSET 0) q
CROSS JOIN unnest(q.ids, q.issuers, q.subjects) WITH ORDINALITY AS v(id, issuer, subject, n)
JOIN tasks t ON t.id = v.id AND t.issuer = v.issuer AND t.subject = v.subject
CROSS JOIN LATERAL (SELECT coalesce(octet_length(t.result), 0) + coalesce(octet_length(t.error), 0)
    + coalesce(octet_length(t.input_requests), 0) AS bytes) p

-- I8, I13. Reads many tasks of many principals in one round trip. Ownership is decided here;
-- a foreign id and an unknown one do the same two index probes and yield the same nothing.
-- The tombstone is read in the same snapshot, so a task being purged is seen as one or the
-- other, never as neither; and only where no task was found (OFFSET 0 keeps that condition in front
-- of the look-up).
-- A result longer than $4 bytes is not sent, but how long it is: 64 large ones would fill a process.
SELECT v.n, CASE WHEN octet_length(t.result) > $4::bigint THEN octet_length(t.result) ELSE 0 END AS withheld, x.final_status AS tombstone_status, x.expired_at AS tombstone_expired_at, t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, CASE WHEN octet_length(t.result) <= $4 THEN t.result END AS result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM (SELECT $1::uuid[] AS ids, $2::text[] AS issuers, $3::text[] AS subjects OFFSET 0) q
CROSS JOIN unnest(q.ids, q.issuers, q.subjects) WITH ORDINALITY AS v(id, issuer, subject, n)
LEFT JOIN tasks t ON t.id = v.id AND t.issuer = v.issuer AND t.subject = v.subject
LEFT JOIN LATERAL (
    SELECT y.final_status, y.expired_at FROM tombstones y
    WHERE t.id IS NULL AND y.task_id = v.id AND y.issuer = v.issuer AND y.subject = v.subject OFFSET 0
) x ON true

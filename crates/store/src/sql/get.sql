-- I8, I13. Reads many tasks of many principals in one round trip. Ownership is decided here;
-- a foreign id and an unknown one do the same two index probes and yield the same nothing.
-- The tombstone is read in the same snapshot, so a task being purged is seen as one or the
-- other, never as neither.
SELECT v.n, x.final_status AS tombstone_status, x.expired_at AS tombstone_expired_at, t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, t.result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM (SELECT $1::uuid[] AS ids, $2::text[] AS issuers, $3::text[] AS subjects OFFSET 0) q
CROSS JOIN unnest(q.ids, q.issuers, q.subjects) WITH ORDINALITY AS v(id, issuer, subject, n)
LEFT JOIN tasks t ON t.id = v.id AND t.issuer = v.issuer AND t.subject = v.subject
LEFT JOIN tombstones x ON x.task_id = v.id AND x.issuer = v.issuer AND x.subject = v.subject

-- I1, I7. One statement, one commit: the key's row first, so that two racing calls meet at
-- its primary key and the loser waits for the winner's commit; the task only if the key is
-- new (or there is none). No row back means: the key exists, or this very insert was
-- committed before and its reply was lost; existing.sql tells which.
WITH k AS (
    INSERT INTO idempotency_keys (issuer, subject, tool, key, task_id, arguments_digest, created_at)
    SELECT $2, $3, $5, $14::text, $1, $10, now() WHERE $14::text IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING task_id
), t AS (
    INSERT INTO tasks (
        id, issuer, subject, tenant, tool, tool_version, queue, priority,
        arguments, arguments_digest, client_capabilities, offered_responses, trace_context,
        idempotency_key, status_message, created_at, last_updated_at, expires_at, ttl_ms_max,
        phase, run_at, tries_max, work_ms_max, held_until, handed_out_at, hinted_at, hint_epoch)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
        $15, n.at, n.at, n.at + $16::bigint * interval '1 millisecond', $17,
        'queued', now(), $18, $19, now() + $20::bigint * interval '1 millisecond',
        CASE WHEN $21 THEN now() END, CASE WHEN $22::text IS NOT NULL THEN now() END, $22
    FROM (SELECT date_trunc('milliseconds', now()) AS at) n
    WHERE $14::text IS NULL OR EXISTS (SELECT FROM k)
    ON CONFLICT (id) DO NOTHING
    RETURNING *
)
SELECT t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, t.result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed
FROM t

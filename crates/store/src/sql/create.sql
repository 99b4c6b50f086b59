-- I1, I7. Many tasks of many callers in one statement and one commit. The key's row first, so that
-- two racing calls meet at its primary key and the loser waits for the winner's commit; the task only
-- if the key is new (or there is none). No row back for a task means: its key exists, also within this
-- very statement, or it was committed before and the reply was lost; existing.sql tells which.
-- Keys are written in their order, so that two statements with the same keys never wait for each other.
WITH v AS MATERIALIZED (
    SELECT v.* FROM (SELECT $1::uuid[] AS a, $2::text[] AS b, $3::text[] AS c, $4::text[] AS d, $5::text[] AS e,
        $6::int[] AS f, $7::text[] AS g, $8::smallint[] AS h, $9::bytea[] AS i, $10::bytea[] AS j, $11::bytea[] AS k,
        $12::bytea[] AS l, $13::bytea[] AS m, $14::text[] AS n, $15::text[] AS o, $16::bigint[] AS p,
        $17::bigint[] AS q, $18::int[] AS r, $19::bigint[] AS s, $20::bigint[] AS t, $21::bool[] AS u,
        $22::text[] AS v, $23::bool[] AS w, $24::bigint[] AS x, $25::bytea[] AS y, $26::text[] AS z OFFSET 0) q,
    unnest(q.a, q.b, q.c, q.d, q.e, q.f, q.g, q.h, q.i, q.j, q.k, q.l, q.m, q.n, q.o, q.p, q.q, q.r, q.s, q.t, q.u,
        q.v, q.w, q.x, q.y, q.z)
    AS v(id, issuer, subject, tenant, tool, tool_version, queue, priority, arguments, arguments_digest,
        client_capabilities, offered_responses, trace_context, key, status_message, ttl_ms, ttl_ms_max,
        tries_max, work_ms_max, hold_ms, handed_out, hint_epoch, lost_fails, alert_after_ms, data_key, sealed_by)
), k AS (
    INSERT INTO idempotency_keys (issuer, subject, tool, key, task_id, arguments_digest, created_at)
    SELECT v.issuer, v.subject, v.tool, v.key, v.id, v.arguments_digest, now() FROM v WHERE v.key IS NOT NULL
    ORDER BY v.issuer, v.subject, v.tool, v.key
    ON CONFLICT DO NOTHING
    RETURNING task_id
), t AS (
    INSERT INTO tasks (
        id, issuer, subject, tenant, tool, tool_version, queue, priority,
        arguments, arguments_digest, client_capabilities, offered_responses, trace_context,
        idempotency_key, status_message, created_at, last_updated_at, expires_at, ttl_ms_max,
        phase, run_at, tries_max, work_ms_max, held_until, handed_out_at, hinted_at, hint_epoch, lost_fails, alert_after_ms,
        data_key, sealed_by)
    SELECT v.id, v.issuer, v.subject, v.tenant, v.tool, v.tool_version, v.queue, v.priority,
        v.arguments, v.arguments_digest, v.client_capabilities, v.offered_responses, v.trace_context,
        v.key, v.status_message, n.at, n.at, n.at + v.ttl_ms * interval '1 millisecond', v.ttl_ms_max,
        'queued', now(), v.tries_max, v.work_ms_max, now() + v.hold_ms * interval '1 millisecond',
        CASE WHEN v.handed_out THEN now() END, CASE WHEN v.hint_epoch IS NOT NULL THEN now() END,
        v.hint_epoch, v.lost_fails, v.alert_after_ms, v.data_key, v.sealed_by
    FROM v, (SELECT date_trunc('milliseconds', now()) AS at) n
    WHERE v.key IS NULL OR v.id IN (SELECT k.task_id FROM k)
    ON CONFLICT (id) DO NOTHING
    RETURNING *
)
SELECT t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, t.result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by
FROM t

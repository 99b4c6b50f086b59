-- I1. create.sql for one task without a key: whoever is alone pays for no list. The arguments are the same
-- arrays, of which the first entries are taken. No row back: this very insert was committed before.
INSERT INTO tasks (
    id, issuer, subject, tenant, tool, tool_version, queue, priority,
    arguments, arguments_digest, client_capabilities, offered_responses, trace_context,
    idempotency_key, status_message, created_at, last_updated_at, expires_at, ttl_ms_max,
    phase, run_at, tries_max, work_ms_max, held_until, handed_out_at, hinted_at, hint_epoch, lost_fails, alert_after_ms,
    data_key, sealed_by)
VALUES (($1::uuid[])[1], ($2::text[])[1], ($3::text[])[1], ($4::text[])[1], ($5::text[])[1], ($6::int[])[1],
    ($7::text[])[1], ($8::smallint[])[1], ($9::bytea[])[1], ($10::bytea[])[1], ($11::bytea[])[1], ($12::bytea[])[1],
    ($13::bytea[])[1], ($14::text[])[1], ($15::text[])[1], date_trunc('milliseconds', now()), date_trunc('milliseconds', now()),
    date_trunc('milliseconds', now()) + ($16::bigint[])[1] * interval '1 millisecond', ($17::bigint[])[1],
    'queued', now(), ($18::int[])[1], ($19::bigint[])[1], now() + ($20::bigint[])[1] * interval '1 millisecond',
    CASE WHEN ($21::bool[])[1] THEN now() END, CASE WHEN ($22::text[])[1] IS NOT NULL THEN now() END,
    ($22::text[])[1], ($23::bool[])[1], ($24::bigint[])[1], ($25::bytea[])[1], ($26::text[])[1])
ON CONFLICT (id) DO NOTHING
RETURNING id, tool, tool_version, status, status_message, created_at, last_updated_at,
    (extract(epoch FROM expires_at - created_at) * 1000)::bigint AS ttl_ms,
    input_requests, result, error, phase, stop_reason, parked_for, rounds,
    first_fetched_at IS NOT NULL AS fetched, handed_out_at IS NOT NULL AS handed_out,
    idempotency_key IS NOT NULL AS keyed, data_key, sealed_by

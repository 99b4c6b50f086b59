-- I10. The job ends because the task waits for answers: lease, slot and owner go, and the
-- TTL grows by the time the questions may wait, up to the tool's cap. Refused when a stop is
-- requested. Two keys of one task are never the same (primary key). No row: repeated.sql tells a
-- repeat from a refusal.
WITH mine AS (
    SELECT claimed_at FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3
), t AS (
    UPDATE tasks SET
        status = 'input_required', phase = 'parked', lease_until = NULL, claimed_at = NULL, journaled = true,
        parked_for = $4, rounds = rounds + 1, input_requests = $5,
        input_deadline_at = now() + (SELECT min(ms) FROM unnest($10::bigint[]) ms) * interval '1 millisecond',
        expires_at = CASE WHEN expires_at IS NOT NULL THEN greatest(expires_at, least(
            expires_at + (SELECT max(ms) FROM unnest($10::bigint[]) ms) * interval '1 millisecond',
            created_at + coalesce(ttl_ms_max, 9000000000000) * interval '1 millisecond')) END,
        work_ms_used = work_ms_used + $11,
        last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
      AND stop_requested_at IS NULL AND open_step IS NULL
      AND (expires_at IS NULL OR expires_at > now())
    RETURNING id, attempt, claimed_by
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how)
    SELECT t.id, t.attempt, t.claimed_by, false, mine.claimed_at, now(), 'parked' FROM t, mine
    ON CONFLICT DO NOTHING
), i AS (
    INSERT INTO inputs (task_id, key, seq, attempt, request, default_response, asked_at, deadline_at)
    SELECT t.id, v.key, v.seq, $2, v.request, v.default_response, now(), now() + v.wait_ms * interval '1 millisecond'
    FROM t, unnest($6::text[], $7::int[], $8::bytea[], $9::bytea[], $10::bigint[])
        AS v(key, seq, request, default_response, wait_ms)
)
SELECT id FROM t

-- I3. Redis says "look", this says "yours": only a due job that nobody owns, or one whose
-- lease ran out. Judged by Postgres' clock alone. After an outage of Postgres (or of the
-- looker's own connection, $8 ms old) leases get one grace ($7 ms) to be renewed first.
-- A repeat by the same token (a lost reply) returns the same attempt again.
-- A lost attempt counts as a try, and what it worked counts as work; a resumption or a drain
-- costs neither. Undoing is a job like any other, but neither a stop nor the TTL ends it. A tool whose
-- jobs an operator paused begins no attempt; what runs goes on, and undoing does.
-- A tool may be limited, to $10 jobs at once and $11 of one principal: what runs under a lease holds a slot;
-- exact under the lock of lock_slots.sql, which the caller then holds. Undoing needs no slot.
-- The end of an attempt that was lost is written down; what is read of it before the row is locked is
-- used only if that attempt is still the last one.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH lost AS (
    SELECT attempt, claimed_by, claimed_at, lease_until, phase = 'undoing' AS undoing FROM tasks
    WHERE id = $1 AND coalesce(phase, '') IN ('running', 'undoing') AND lease_until < now() AND claim_token <> $5
), claimed AS (
    UPDATE tasks t SET
        phase = CASE WHEN t.phase = 'undoing' THEN 'undoing' ELSE 'running' END,
        attempt = t.attempt + CASE WHEN t.lease_until IS NOT NULL AND t.claim_token = $5 THEN 0 ELSE 1 END,
        tries = t.tries + CASE WHEN t.phase = 'running' AND t.claim_token <> $5 THEN 1 ELSE 0 END,
        work_ms_used = t.work_ms_used + CASE WHEN t.phase = 'running' AND t.claim_token <> $5
            THEN coalesce((extract(epoch FROM t.lease_until - t.claimed_at) * 1000)::bigint, 0) ELSE 0 END,
        claim_token = $5,
        claimed_by = $9,
        claimed_at = CASE WHEN t.lease_until IS NOT NULL AND t.claim_token = $5 THEN t.claimed_at ELSE now() END,
        lease_until = now() + $6::bigint * interval '1 millisecond',
        started_at = coalesce(t.started_at, now()),
        asleep = false,
        tool_version = CASE WHEN t.journaled THEN t.tool_version ELSE $3 END
    WHERE t.id = $1 AND t.tool = $2 AND (NOT t.journaled OR t.tool_version = ANY($4::int[]))
      AND ((coalesce(t.phase, '') = 'queued' AND t.run_at <= now() AND t.stop_requested_at IS NULL
            AND (t.expires_at IS NULL OR t.expires_at > now())
            AND NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = t.tool AND p.jobs))
        OR (coalesce(t.phase, '') IN ('running', 'undoing') AND t.lease_until IS NOT NULL AND t.claim_token = $5)
        OR (coalesce(t.phase, '') = 'undoing' AND t.lease_until IS NULL AND t.run_at <= now())
        OR (coalesce(t.phase, '') IN ('running', 'undoing') AND t.lease_until < now()
            AND (t.phase = 'undoing' OR (t.stop_requested_at IS NULL AND NOT t.lost_fails
                AND (t.expires_at IS NULL OR t.expires_at > now()) AND t.tries + 1 < t.tries_max
                AND NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = t.tool AND p.jobs)))
            AND $8::bigint >= $7::bigint AND pg_postmaster_start_time() < now() - $7::bigint * interval '1 millisecond'))
      AND (($10::int IS NULL AND $11::int IS NULL) OR t.phase = 'undoing' OR (t.lease_until IS NOT NULL AND t.claim_token = $5)
        OR (($10 IS NULL OR $10 > (SELECT count(*) FROM tasks r WHERE r.phase = 'running' AND r.tool = $2 AND r.id <> $1
                AND NOT (r.lease_until < now() AND $8 >= $7
                    AND pg_postmaster_start_time() < now() - $7 * interval '1 millisecond')))
            AND ($11 IS NULL OR $11 > (SELECT count(*) FROM tasks r WHERE r.phase = 'running' AND r.tool = $2 AND r.id <> $1
                AND hashtextextended(r.issuer || ' ' || r.subject, 0) = hashtextextended(t.issuer || ' ' || t.subject, 0)
                AND NOT (r.lease_until < now() AND $8 >= $7
                    AND pg_postmaster_start_time() < now() - $7 * interval '1 millisecond')))))
    RETURNING t.id, t.queue, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
        t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
        t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message, t.data_key, t.sealed_by, t.phase = 'undoing' AS undoing,
        greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
        (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms,
        (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how)
    SELECT c.id, l.attempt, l.claimed_by, l.undoing, l.claimed_at, l.lease_until, 'lost'
    FROM claimed c JOIN lost l ON l.attempt = c.attempt - 1
    ON CONFLICT DO NOTHING
), forgotten AS (DELETE FROM attempts a USING claimed c WHERE a.task_id = c.id
    AND c.attempt > 200 AND a.attempt < c.attempt - 200)
SELECT c.*, EXISTS (SELECT FROM lost l WHERE l.attempt = c.attempt - 1) AS taken_over FROM claimed c

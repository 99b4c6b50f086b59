-- I3. Redis says "look", this says "yours": only a due job that nobody owns, or one whose
-- lease ran out. Judged by Postgres' clock alone. After an outage of Postgres (or of the
-- looker's own connection, $8 ms old) leases get one grace ($7 ms) to be renewed first.
-- A repeat by the same token (a lost reply) returns the same attempt again.
-- A lost attempt counts as a try; a resumption or a drain does not.
UPDATE tasks t SET
    phase = 'running',
    attempt = t.attempt + CASE WHEN t.phase = 'running' AND t.claim_token = $5 THEN 0 ELSE 1 END,
    tries = t.tries + CASE WHEN t.phase = 'running' AND t.claim_token <> $5 THEN 1 ELSE 0 END,
    claim_token = $5,
    claimed_by = $9,
    lease_until = now() + $6::bigint * interval '1 millisecond',
    started_at = coalesce(t.started_at, now()),
    tool_version = CASE WHEN t.journaled THEN t.tool_version ELSE $3 END
WHERE t.id = $1 AND t.tool = $2 AND (NOT t.journaled OR t.tool_version = ANY($4::int[]))
  AND ((t.phase = 'queued' AND t.run_at <= now() AND t.stop_requested_at IS NULL
        AND (t.expires_at IS NULL OR t.expires_at > now()))
    OR (t.phase = 'running' AND t.claim_token = $5)
    OR (t.phase = 'running' AND t.lease_until < now() AND t.stop_requested_at IS NULL
        AND (t.expires_at IS NULL OR t.expires_at > now())
        AND t.tries + 1 < t.tries_max
        AND $8::bigint >= $7::bigint AND pg_postmaster_start_time() < now() - $7::bigint * interval '1 millisecond'))
RETURNING t.id, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
    t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
    t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message,
    greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
    (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms

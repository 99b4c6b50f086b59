-- I3. The plain case of claim.sql for many jobs of one worker at once: due, nobody's, not journaled, and
-- of tools without limits. Whatever is not returned is asked by claim.sql, which knows all cases: a repeat
-- by the same token, a lease that ran out, a version that is pinned; and a row that somebody has locked, for
-- whom nobody else waits. Rows are locked in id order.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS MATERIALIZED (
    SELECT t.id, v.version, v.claim_token, v.worker FROM unnest((SELECT $1::uuid[]), (SELECT $2::text[]), (SELECT $3::int[]), (SELECT $4::uuid[]), (SELECT $5::text[]))
      AS v(id, tool, version, claim_token, worker)
    JOIN tasks t ON t.id = v.id AND t.tool = v.tool
    WHERE coalesce(t.phase, '') = 'queued' AND t.run_at <= now() AND t.stop_requested_at IS NULL AND NOT t.journaled
      AND t.lease_until IS NULL AND t.attempt < 200 AND (t.expires_at IS NULL OR t.expires_at > now())
      AND NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = t.tool AND p.jobs)
    ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET
    phase = 'running', attempt = t.attempt + 1, claim_token = m.claim_token, claimed_by = m.worker, claimed_at = now(),
    lease_until = now() + $6::bigint * interval '1 millisecond', started_at = coalesce(t.started_at, now()),
    asleep = false, tool_version = m.version
FROM mine m WHERE t.id = m.id
RETURNING t.id, t.claim_token, t.queue, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
    t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
    t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message, t.data_key, t.sealed_by, false AS undoing,
    greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
    (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms,
    (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

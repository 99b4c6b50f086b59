-- I3. claim_queued.sql for one job: whoever is alone pays for no list. The arguments are the same arrays, of
-- which the first entries are taken.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS MATERIALIZED (
    SELECT q.id FROM tasks q
    WHERE q.id = ($1::uuid[])[1] AND q.tool = ($2::text[])[1]
      AND coalesce(q.phase, '') = 'queued' AND q.run_at <= now() AND q.stop_requested_at IS NULL AND NOT q.journaled
      AND q.lease_until IS NULL AND q.attempt < 200 AND (q.expires_at IS NULL OR q.expires_at > now())
      AND NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = q.tool AND p.jobs)
    FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE tasks t SET
    phase = 'running', attempt = t.attempt + 1, claim_token = ($4::uuid[])[1], claimed_by = ($5::text[])[1], claimed_at = now(),
    lease_until = now() + $6::bigint * interval '1 millisecond', started_at = coalesce(t.started_at, now()),
    asleep = false, tool_version = ($3::int[])[1]
WHERE t.id = ($1::uuid[])[1] AND EXISTS (SELECT FROM mine)
RETURNING t.id, t.claim_token, t.queue, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
    t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
    t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message, t.data_key, t.sealed_by, false AS undoing,
    greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
    (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms,
    (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

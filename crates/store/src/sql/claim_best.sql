-- I3, and whose turn it is. A hint says that there is work; where more waits than there are places, this
-- takes the job whose turn it is, whichever the hint ($1) named: of the queue of that job ($2 without a
-- hint), among the tools that the worker serves ($3 with version $4), the highest priority first, then the
-- principal with the fewest running jobs in the queue, then the longest waiting. With $15 the
-- priority goes first whose jobs have waited longest, so that none waits for ever.
-- Jobs of one tool, priority and principal stand together in tasks_waiting, so that a principal with
-- 100,000 jobs costs as much as one with one. Of many principals 16 are looked at, from a random place
-- ($14) on. What is not due yet is passed within the index, so that it hides nothing that is; what is `asleep`
-- is not in it. What others have locked is theirs. Nothing is taken where the hinted job is to be undone, or
-- its lease ran out, or it is due and still `asleep`: that one goes first, by claim.sql (`named`). Nor where it
-- does not wait (`gone`): such a hint is one more than there are jobs.
-- Limits of tools ($5: jobs at once, $6: of one principal) are counted, and not stored: what runs under a
-- lease holds a slot, and nothing else does. Counting is exact under the lock of lock_slots.sql only, so
-- without it a job of a limited tool is told (`best_tool`), and not taken. $16: `take` what is not limited;
-- `sure`, the lock is held; `look`, take nothing.
WITH RECURSIVE hinted AS MATERIALIZED (
    SELECT t.queue, named, NOT named AND NOT coalesce(t.phase = 'queued' AND t.run_at <= now(), false) AS gone
    FROM (SELECT $1::uuid AS id) q LEFT JOIN tasks t ON t.id = q.id
    CROSS JOIN LATERAL (SELECT coalesce(t.phase = 'undoing' OR (t.phase = 'running' AND t.lease_until < now())
        OR (t.phase = 'queued' AND t.asleep AND t.run_at <= now()), false) AS named) n
    WHERE q.id IS NOT NULL
), served AS MATERIALIZED (
    SELECT s.*, coalesce((SELECT h.queue FROM hinted h), $2::text) AS queue
    FROM unnest($3::text[], $4::int[], $5::int[], $6::int[]) AS s(tool, version, slots, slots_each)
    WHERE NOT EXISTS (SELECT FROM hinted h WHERE h.named OR h.gone)
      AND NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = s.tool AND p.jobs)
), levels AS MATERIALIZED (
    SELECT s.*, p.priority FROM served s CROSS JOIN LATERAL (
        WITH RECURSIVE p AS (
            SELECT 32767 AS priority
            UNION ALL
            SELECT x.priority FROM p CROSS JOIN LATERAL (
                SELECT t.priority::int FROM tasks t
                WHERE t.phase = 'queued' AND NOT t.asleep AND t.run_at <= now()
                  AND t.queue = s.queue AND t.tool = s.tool AND t.priority < p.priority
                ORDER BY t.priority DESC LIMIT 1) x
        ) SELECT p.priority FROM p OFFSET 1 LIMIT 16) p
    -- Where it has no slot, nothing of it is looked at.
    WHERE s.slots IS NULL OR s.slots > (SELECT count(*) FROM tasks r WHERE r.phase = 'running' AND r.tool = s.tool
        AND NOT (r.lease_until < now() AND $12::bigint >= $11::bigint
            AND pg_postmaster_start_time() < now() - $11::bigint * interval '1 millisecond'))
), heads AS MATERIALIZED (
    SELECT l.*, w.principal, w.run_at FROM levels l CROSS JOIN LATERAL (
        SELECT w.principal, w.run_at
        FROM (VALUES ($14::bigint, 9223372036854775807), (-9223372036854775808, $14::bigint)) AS part(low, high)
        CROSS JOIN LATERAL (
            WITH RECURSIVE w AS (
                SELECT part.low AS principal, NULL::timestamptz AS run_at, false AS fits, 0 AS fitting, 0 AS looked
                UNION ALL
                SELECT x.principal, x.run_at, x.fits, w.fitting + x.fits::int, w.looked + 1
                FROM w CROSS JOIN LATERAL (
                    SELECT hashtextextended(t.issuer || ' ' || t.subject, 0) AS principal, t.run_at,
                        (l.slots_each IS NULL OR l.slots_each > (SELECT count(*) FROM tasks r
                            WHERE r.phase = 'running' AND r.tool = l.tool
                              AND hashtextextended(r.issuer || ' ' || r.subject, 0) = hashtextextended(t.issuer || ' ' || t.subject, 0)
                              AND NOT (r.lease_until < now() AND $12::bigint >= $11::bigint
                                  AND pg_postmaster_start_time() < now() - $11::bigint * interval '1 millisecond'))) AS fits
                    FROM tasks t
                    WHERE t.phase = 'queued' AND NOT t.asleep AND t.run_at <= now()
                      AND t.queue = l.queue AND t.tool = l.tool AND t.priority = l.priority
                      AND hashtextextended(t.issuer || ' ' || t.subject, 0) > w.principal
                      AND hashtextextended(t.issuer || ' ' || t.subject, 0) <= part.high
                    ORDER BY hashtextextended(t.issuer || ' ' || t.subject, 0), t.run_at LIMIT 1) x
                WHERE w.fitting < 16 AND w.looked < 256
            ) SELECT w.principal, w.run_at FROM w WHERE w.fits) w
        LIMIT 16) w
), ranked AS MATERIALIZED (
    SELECT h.*, CASE WHEN $15::bool THEN min(h.run_at) OVER (PARTITION BY h.priority) END AS level_at,
        (SELECT count(*) FROM (SELECT FROM tasks r WHERE r.phase = 'running' AND r.queue = h.queue
            AND hashtextextended(r.issuer || ' ' || r.subject, 0) = h.principal LIMIT 1000) r) AS running
    FROM heads h
    ORDER BY level_at, priority DESC, running, run_at
), best AS MATERIALIZED (
    SELECT $16::text = 'sure' OR ($16 = 'take' AND r.slots IS NULL AND r.slots_each IS NULL) AS sure,
        r.queue, r.tool, r.version, j.id, j.tool_version, j.journaled
    FROM ranked r CROSS JOIN LATERAL (
        SELECT t.id, t.tool_version, t.journaled FROM tasks t
        WHERE t.phase = 'queued' AND NOT t.asleep AND t.queue = r.queue AND t.tool = r.tool AND t.priority = r.priority
          AND hashtextextended(t.issuer || ' ' || t.subject, 0) = r.principal
          AND t.run_at <= now() AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
          AND (NOT t.journaled OR (t.tool, t.tool_version) IN (SELECT * FROM unnest($7::text[], $8::int[])))
        ORDER BY t.run_at LIMIT 1 FOR NO KEY UPDATE OF t SKIP LOCKED) j
    LIMIT 1
), claimed AS (
    UPDATE tasks t SET
        phase = 'running', attempt = t.attempt + 1, claim_token = $9, claimed_by = $13, claimed_at = now(),
        lease_until = now() + $10::bigint * interval '1 millisecond', started_at = coalesce(t.started_at, now()),
        tool_version = CASE WHEN t.journaled THEN t.tool_version ELSE b.version END
    FROM best b WHERE t.id = b.id AND b.sure AND t.phase = 'queued'
    RETURNING t.id, t.queue, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
        t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
        t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message, t.data_key, t.sealed_by, false AS undoing,
        greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
        (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms,
        (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms
)
SELECT c.*, b.id AS best_id, b.queue AS best_queue, b.tool AS best_tool,
    CASE WHEN b.journaled THEN b.tool_version ELSE b.version END AS served_version,
    EXISTS (SELECT FROM hinted h WHERE h.named) AS named, EXISTS (SELECT FROM hinted h WHERE h.gone) AS gone,
    -- All that is due is of one principal and one priority: which of it is taken does not matter.
    (SELECT min(r.principal) = max(r.principal) AND min(r.priority) = max(r.priority) FROM ranked r) IS TRUE AS alone,
    -- Something could be taken, and others have it locked at the moment.
    b.id IS NULL AND EXISTS (SELECT FROM ranked r CROSS JOIN LATERAL (
        SELECT FROM tasks t
        WHERE t.phase = 'queued' AND NOT t.asleep AND t.queue = r.queue AND t.tool = r.tool AND t.priority = r.priority
          AND hashtextextended(t.issuer || ' ' || t.subject, 0) = r.principal
          AND t.run_at <= now() AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
          AND (NOT t.journaled OR (t.tool, t.tool_version) IN (SELECT * FROM unnest($7::text[], $8::int[])))
        ORDER BY t.run_at LIMIT 1) j) AS busy
FROM (SELECT 1) one LEFT JOIN best b ON true LEFT JOIN claimed c ON true

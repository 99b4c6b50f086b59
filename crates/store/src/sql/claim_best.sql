-- I3, and whose turn it is: where more waits than there are places, a worker takes the $16 jobs whose turn it is, of
-- one queue ($1), among the tools that it serves ($2 with version $3): the highest priority first, then the
-- principal with the fewest running jobs in the queue, then the longest waiting. With $14 the
-- priority goes first whose jobs have waited longest, so that none waits for ever.
-- Jobs of one tool, priority and principal stand together in tasks_waiting, so that a principal with
-- 100,000 jobs costs as much as one with one. Of many principals 16 are looked at, from a random place
-- ($13) on. What is not due yet is passed within the index, so that it hides nothing that is; what is `asleep`
-- is not in it. What others have locked is theirs.
-- Limits of tools ($4: jobs at once, $5: of one principal) are counted, and not stored: what runs under a
-- lease holds a slot, and nothing else does. Counting is exact under the lock of lock_slots.sql only, so
-- without it a job of a limited tool is told (`best_tool`), and not taken. $15: `take` what is not limited;
-- `sure`, the lock is held; `look`, take nothing.
WITH RECURSIVE served AS MATERIALIZED (
    SELECT s.*, $1::text AS queue
    FROM unnest($2::text[], $3::int[], $4::int[], $5::int[]) AS s(tool, version, slots, slots_each)
    WHERE NOT EXISTS (SELECT FROM tool_pauses p WHERE p.tool = s.tool AND p.jobs)
), levels AS MATERIALIZED (
    SELECT s.*, f.free, p.priority FROM served s CROSS JOIN LATERAL (
        SELECT CASE WHEN s.slots IS NOT NULL THEN s.slots - (SELECT count(*) FROM tasks r
            WHERE r.phase = 'running' AND r.tool = s.tool
              AND NOT (r.lease_until < now() AND $11::bigint >= $10::bigint
                  AND pg_postmaster_start_time() < now() - $10::bigint * interval '1 millisecond')) END AS free
    ) f CROSS JOIN LATERAL (
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
    WHERE s.slots IS NULL OR f.free > 0
), heads AS MATERIALIZED (
    SELECT l.*, w.principal, w.run_at FROM levels l CROSS JOIN LATERAL (
        SELECT w.principal, w.run_at
        FROM (VALUES ($13::bigint, 9223372036854775807), (-9223372036854775808, $13::bigint)) AS part(low, high)
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
                              AND NOT (r.lease_until < now() AND $11::bigint >= $10::bigint
                                  AND pg_postmaster_start_time() < now() - $10::bigint * interval '1 millisecond'))) AS fits
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
    SELECT h.*, CASE WHEN $14::bool THEN min(h.run_at) OVER (PARTITION BY h.priority) END AS level_at,
        (SELECT count(*) FROM (SELECT FROM tasks r WHERE r.phase = 'running' AND r.queue = h.queue
            AND hashtextextended(r.issuer || ' ' || r.subject, 0) = h.principal LIMIT 1000) r) AS running
    FROM heads h
), turns AS MATERIALIZED (
    -- Whoever gets several has one more running with each. (16: TURNS_MAX.) Of a principal no more than the tool has
    -- slots for: they would keep others from their turn.
    SELECT r.*, k.k FROM ranked r CROSS JOIN generate_series(1, 16) AS k(k)
    WHERE k.k <= $16::int AND (r.free IS NULL OR k.k <= r.free)
    ORDER BY r.level_at, r.priority DESC,
        r.running + row_number() OVER (PARTITION BY r.principal, r.priority ORDER BY k.k, r.run_at), r.run_at
), best AS MATERIALIZED (
    SELECT row_number() OVER () AS n, b.* FROM (
        SELECT $15::text = 'sure' OR ($15 = 'take' AND r.slots IS NULL AND r.slots_each IS NULL) AS sure,
            r.queue, r.tool, r.version, j.id, j.tool_version, j.journaled
        FROM turns r CROSS JOIN LATERAL (
            SELECT t.id, t.tool_version, t.journaled FROM tasks t
            WHERE t.phase = 'queued' AND NOT t.asleep AND t.queue = r.queue AND t.tool = r.tool AND t.priority = r.priority
              AND hashtextextended(t.issuer || ' ' || t.subject, 0) = r.principal
              AND t.run_at <= now() AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
              AND (NOT t.journaled OR (t.tool, t.tool_version) IN (SELECT * FROM unnest($6::text[], $7::int[])))
            -- The ones before it are locked by now, by this statement.
            ORDER BY t.run_at LIMIT 1 OFFSET r.k - 1 FOR NO KEY UPDATE OF t SKIP LOCKED) j
        LIMIT $16) b
), claimed AS (
    UPDATE tasks t SET
        phase = 'running', attempt = t.attempt + 1, claim_token = ($8::uuid[])[b.n], claimed_by = $12, claimed_at = now(),
        lease_until = now() + $9::bigint * interval '1 millisecond', started_at = coalesce(t.started_at, now()),
        tool_version = CASE WHEN t.journaled THEN t.tool_version ELSE b.version END
    FROM best b WHERE t.id = b.id AND b.sure AND t.phase = 'queued'
    RETURNING t.claim_token, t.id, t.queue, t.issuer, t.subject, t.tenant, t.tool, t.tool_version, t.attempt, t.tries, t.tries_max,
        t.arguments, t.client_capabilities, t.offered_responses, t.trace_context, t.journaled, t.open_step,
        t.handed_out_at IS NOT NULL AS handed_out, t.rounds, t.status_message, t.data_key, t.sealed_by, false AS undoing,
        greatest(t.work_ms_max - t.work_ms_used, 0) AS work_ms_left,
        (extract(epoch FROM now() - t.run_at) * 1000)::bigint AS waited_ms,
        (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms
)
SELECT c.*, b.id AS best_id, b.queue AS best_queue, b.tool AS best_tool,
    CASE WHEN b.journaled THEN b.tool_version ELSE b.version END AS served_version,
    -- All that is due is of one principal and one priority: which of it is taken does not matter.
    (SELECT min(r.principal) = max(r.principal) AND min(r.priority) = max(r.priority) FROM ranked r) IS TRUE AS alone,
    (SELECT min(r.priority) < max(r.priority) FROM ranked r) IS TRUE AS priorities,
    -- More could be taken, and others have it locked at the moment.
    (SELECT count(DISTINCT b.id) FROM best b) < $16 AND EXISTS (SELECT FROM ranked r CROSS JOIN LATERAL (
        SELECT t.id FROM tasks t
        WHERE t.phase = 'queued' AND NOT t.asleep AND t.queue = r.queue AND t.tool = r.tool AND t.priority = r.priority
          AND hashtextextended(t.issuer || ' ' || t.subject, 0) = r.principal
          AND t.run_at <= now() AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
          AND (NOT t.journaled OR (t.tool, t.tool_version) IN (SELECT * FROM unnest($6::text[], $7::int[])))
        ORDER BY t.run_at LIMIT 1 + (SELECT count(*) FROM best)) j
        WHERE j.id NOT IN (SELECT b.id FROM best b)
          AND (r.free IS NULL OR r.free > (SELECT count(DISTINCT b.id) FROM best b WHERE b.tool = r.tool))) AS busy
FROM (SELECT 1) one LEFT JOIN best b ON true LEFT JOIN claimed c ON c.id = b.id
ORDER BY b.n

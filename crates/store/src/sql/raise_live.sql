-- Live tasks that somebody should look at: a question that waits too long ($2 ms), work that goes on
-- beyond its limit, a try before the last; and, for receivers that want it ($4), every new question.
-- The fingerprint makes each happen once.
WITH seen AS (
    SELECT 'question_waiting' AS kind, id, rounds, issuer, subject, tool, 'unanswered' AS reason, created_at,
        last_updated_at AS since
    FROM tasks WHERE phase = 'parked' AND last_updated_at < now() - $2::bigint * interval '1 millisecond'
    UNION ALL
    SELECT 'question_asked', id, rounds, issuer, subject, tool, 'asked', created_at, last_updated_at
    FROM tasks WHERE phase = 'parked' AND cardinality($4::text[]) > 0
      AND last_updated_at > now() - interval '1 hour' AND parked_for = 'task'
    UNION ALL
    SELECT 'over_work_limit', id, 0, issuer, subject, tool, 'work_limit', created_at, claimed_at
    FROM tasks WHERE phase = 'running' AND claimed_at IS NOT NULL AND lease_until > now()
      AND claimed_at + (work_ms_max - work_ms_used) * interval '1 millisecond' < now() - interval '1 minute'
    UNION ALL
    SELECT 'attempts_near_max', id, 0, issuer, subject, tool, CASE WHEN last_error IS NULL THEN 'worker_lost' ELSE 'tool_error' END, created_at, now()
    FROM tasks WHERE phase IN ('queued', 'running') AND tries_max > 1 AND tries >= tries_max - 1
), fresh AS (
    SELECT seen.*, CASE WHEN rounds > 0 THEN kind || ':' || id || ':' || rounds ELSE kind || ':' || id END AS fingerprint
    FROM seen
), raised AS (
    INSERT INTO alerts (id, fingerprint, kind, task_id, round, issuer, subject, tool, reason, task_created_at, since, raised_at)
    SELECT gen_random_uuid(), f.fingerprint, f.kind, f.id, f.rounds, f.issuer, f.subject, f.tool, f.reason, f.created_at,
        f.since, now()
    FROM fresh f
    WHERE NOT EXISTS (SELECT FROM alerts a WHERE a.fingerprint = f.fingerprint)
    LIMIT $1
    ON CONFLICT (fingerprint) DO NOTHING
    RETURNING id, kind
), told AS (
    INSERT INTO alert_deliveries (alert_id, receiver, next_at)
    SELECT raised.id, r, now()
    FROM raised, unnest(CASE WHEN kind = 'question_asked' THEN $4::text[] ELSE $3::text[] END) r
)
SELECT count(*) AS raised FROM raised

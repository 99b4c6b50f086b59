-- I9. Failures that their owner has not looked at within the window ($2 ms where the tool does not
-- say), and at the latest a minute before they are purged; steps in doubt at once. Claimed by
-- `alerted_at`: exactly one statement raises each. What was read is marked as judged at once, so that
-- nobody looks at it again and again until its window is over.
WITH due AS MATERIALIZED (
    SELECT id, issuer, subject, tool, error, is_error, open_step, created_at, finished_at, first_fetched_at
    FROM tasks
    WHERE phase IS NULL AND alerted_at IS NULL AND (status = 'failed' OR is_error)
      AND (open_step IS NOT NULL OR first_fetched_at IS NOT NULL
        OR finished_at + coalesce(alert_after_ms, $2::bigint) * interval '1 millisecond' <= now()
        OR expires_at <= now() + interval '1 minute')
      AND ($4::uuid IS NULL OR id = $4)
    ORDER BY finished_at LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
), raised AS (
    INSERT INTO alerts (id, fingerprint, kind, task_id, issuer, subject, tool, reason, task_created_at, since, raised_at)
    SELECT gen_random_uuid(), k.kind || ':' || due.id, k.kind, due.id, issuer, subject, tool,
        CASE WHEN open_step IS NOT NULL THEN 'step_in_doubt' WHEN is_error THEN 'is_error' ELSE 'failed' END,
        created_at, finished_at, now()
    FROM due, LATERAL (SELECT CASE WHEN open_step IS NOT NULL THEN 'step_in_doubt' ELSE 'unfetched_failure' END AS kind) k
    WHERE first_fetched_at IS NULL OR open_step IS NOT NULL
    ON CONFLICT (fingerprint) DO NOTHING
    RETURNING id
), told AS (
    INSERT INTO alert_deliveries (alert_id, receiver, next_at)
    SELECT raised.id, r, now() FROM raised, unnest($3::text[]) r
), judged AS (
    UPDATE tasks SET alerted_at = now() FROM due WHERE tasks.id = due.id
)
SELECT (SELECT count(*) FROM due) AS judged, (SELECT count(*) FROM raised) AS raised

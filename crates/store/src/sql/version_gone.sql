-- A pinned task whose version no worker has served, or could resume, for a stated time ($1 ms):
-- told to stop, so that it fails by name instead of waiting for ever.
WITH due AS MATERIALIZED (
    SELECT t.id FROM tasks t
    WHERE t.journaled AND t.stop_requested_at IS NULL
      AND (t.phase = 'queued' OR (t.phase = 'running' AND t.lease_until < now()
        AND $3::bigint >= $4::bigint AND pg_postmaster_start_time() < now() - $4::bigint * interval '1 millisecond'))
      AND t.run_at < now() - $1::bigint * interval '1 millisecond'
      AND NOT EXISTS (
        SELECT FROM tools v WHERE v.name = t.tool AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond'
          AND (v.version = t.tool_version
            OR convert_from(v.spec, 'UTF8')::jsonb -> 'resumes' @> to_jsonb(t.tool_version)))
      AND NOT EXISTS (
        SELECT FROM providers v WHERE 'provider/' || v.name = t.tool AND v.version = t.tool_version
          AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond')
      AND ($5::uuid IS NULL OR t.id = $5)
    ORDER BY t.id LIMIT $2
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET stop_requested_at = now(), stop_reason = 'version_gone'
FROM due WHERE t.id = due.id
RETURNING t.id

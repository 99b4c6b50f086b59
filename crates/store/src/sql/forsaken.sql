-- What version_gone.sql would tell to stop, but for those tried before, whoever may own it: after one
-- of a batch was refused.
SELECT t.id FROM tasks t
WHERE t.journaled AND t.stop_requested_at IS NULL AND t.phase IN ('queued', 'running')
  AND t.run_at < now() - $1::bigint * interval '1 millisecond' AND t.id <> ALL($3::uuid[])
  AND NOT EXISTS (
    SELECT FROM tools v WHERE v.name = t.tool AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond'
      AND (v.version = t.tool_version
        OR convert_from(v.spec, 'UTF8')::jsonb -> 'resumes' @> to_jsonb(t.tool_version)))
  AND NOT EXISTS (
    SELECT FROM providers v WHERE 'provider/' || v.name = t.tool AND v.version = t.tool_version
      AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond')
ORDER BY t.id LIMIT $2

-- Tasks being undone by a version that no worker has served, or could resume, for a stated time.
SELECT t.id FROM tasks t
WHERE t.phase = 'undoing' AND (t.lease_until IS NULL OR t.lease_until < now())
  AND t.run_at < now() - $1::bigint * interval '1 millisecond'
  AND NOT EXISTS (
    SELECT FROM tools v WHERE v.name = t.tool AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond'
      AND (v.version = t.tool_version
        OR convert_from(v.spec, 'UTF8')::jsonb -> 'resumes' @> to_jsonb(t.tool_version)))
  AND NOT EXISTS (
    SELECT FROM providers v WHERE 'provider/' || v.name = t.tool AND v.version = t.tool_version
      AND v.last_seen_at > now() - $1::bigint * interval '1 millisecond')
  AND t.id <> ALL($3::uuid[])
ORDER BY t.id LIMIT $2

-- For operators: tasks by what they are, the newest first, and of those only what an act ($8) is for.
-- No payload but an error's reason. Pages go on before an id ($9).
SELECT id, issuer, subject, tenant, tool, tool_version, status, phase, status_message,
       created_at, run_at, finished_at, expires_at, lease_until, attempt, tries, tries_max, claimed_by,
       stop_reason, last_error, first_fetched_at IS NOT NULL AS fetched, handed_out_at IS NOT NULL AS handed_out,
       (extract(epoch FROM now() - created_at))::bigint AS age_s,
       (extract(epoch FROM run_at - now()))::bigint AS due_in_s,
       CASE WHEN outcome_encoding = 0 AND octet_length(error) <= 65536 THEN error END AS error
FROM tasks
WHERE ($1::text[] IS NULL OR status = ANY($1::text[]))
  AND ($2::text[] IS NULL OR phase = ANY($2::text[]))
  AND ($3::text IS NULL OR tool = $3)
  AND ($4::text IS NULL OR subject = $4)
  AND ($5::text IS NULL OR issuer = $5)
  AND ($6::bigint IS NULL OR created_at < now() - $6::bigint * interval '1 millisecond')
  AND (NOT $7::boolean OR (phase IS NULL AND first_fetched_at IS NULL))
  AND CASE $8::text
      WHEN 'cancel' THEN phase IN ('queued', 'running', 'parked') AND stop_requested_at IS NULL
      WHEN 'expire' THEN phase IS NULL OR (phase <> 'undoing' AND stop_requested_at IS NULL)
      WHEN 'requeue' THEN phase IN ('queued', 'undoing') AND lease_until IS NULL AND (phase = 'undoing' OR stop_requested_at IS NULL)
      WHEN 'retry' THEN status = 'failed' OR (status = 'completed' AND is_error)
      ELSE true END
  AND ($9::uuid IS NULL OR id < $9)
ORDER BY id DESC LIMIT $10

-- For operators: tasks by what they are, the newest first, and of those only what an act ($8) is for.
-- No payload but an error's reason. Pages go on before an id ($9). Asked for retrying, it says why that is
-- refused without force.
SELECT id, issuer, subject, tenant, tool, tool_version, status, phase, status_message,
       data_key, sealed_by, created_at, run_at, finished_at, expires_at, lease_until, attempt, tries, tries_max, claimed_by,
       stop_reason, last_error, first_fetched_at IS NOT NULL AS fetched, handed_out_at IS NOT NULL AS handed_out,
       (extract(epoch FROM now() - created_at))::bigint AS age_s,
       (extract(epoch FROM run_at - now()))::bigint AS due_in_s,
       coalesce(is_error, false) AS is_error, CASE WHEN $8 = 'retry' THEN CASE
           WHEN open_step IS NOT NULL OR EXISTS (SELECT FROM steps s WHERE s.task_id = t.id AND s.undo_state IN ('started', 'failed'))
               THEN 'a step is in doubt'
           WHEN EXISTS (SELECT FROM audit_tasks a WHERE a.task_id = t.id AND a.new_task_id IS NOT NULL)
               THEN 'repeated already' END END AS refusal,
       CASE WHEN outcome_encoding = 0 AND octet_length(error) <= 65536 THEN error END AS error
FROM tasks t
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
  AND (NOT $11::boolean OR status = 'failed' OR (status = 'completed' AND is_error))
  AND ($12::uuid[] IS NULL OR id = ANY($12::uuid[]))
ORDER BY id DESC LIMIT $10

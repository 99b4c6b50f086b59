-- First answer wins; runs under the lock of lock_for_answer.sql or lock_unanswered.sql.
UPDATE inputs SET response = v.response, answered_at = now(), answered_by = $4
FROM unnest($2::text[], $3::bytea[]) AS v(key, response)
WHERE inputs.task_id = $1 AND inputs.key = v.key AND inputs.answered_at IS NULL

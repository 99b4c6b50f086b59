-- I3, I6. The results of many attempts, each once. Fenced; not while a step is open. A result that
-- races with a cancel wins if it comes first, as MCP allows. No row: repeated.sql tells a repeat from a
-- loss. Rows are locked in id order.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS MATERIALIZED (
    SELECT t.id, v.result, v.worked_ms, v.is_error FROM unnest((SELECT $1::uuid[]), (SELECT $2::int[]), (SELECT $3::uuid[]), (SELECT $4::bytea[]),
        (SELECT $5::bigint[]), (SELECT $6::bool[]))
      AS v(id, attempt, claim_token, result, worked_ms, is_error)
    JOIN tasks t ON t.id = v.id AND t.attempt = v.attempt AND t.claim_token = v.claim_token
    WHERE coalesce(t.phase, '') = 'running' AND t.open_step IS NULL
    ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET
    status = 'completed', result = m.result, is_error = m.is_error, phase = NULL, lease_until = NULL, finished_at = now(),
    last_error = NULL, status_message = NULL, work_ms_used = t.work_ms_used + m.worked_ms,
    last_updated_at = greatest(date_trunc('milliseconds', now()), t.last_updated_at + interval '1 millisecond')
FROM mine m WHERE t.id = m.id
RETURNING t.claim_token, (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

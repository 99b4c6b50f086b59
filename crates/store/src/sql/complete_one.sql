-- I3, I6. complete.sql for one result: whoever is alone pays for no list. The arguments are the same arrays, of
-- which the first entries are taken.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
UPDATE tasks t SET
    status = 'completed', result = ($4::bytea[])[1], is_error = ($6::bool[])[1], phase = NULL, lease_until = NULL,
    finished_at = now(), last_error = NULL, status_message = NULL, work_ms_used = t.work_ms_used + ($5::bigint[])[1],
    last_updated_at = greatest(date_trunc('milliseconds', now()), t.last_updated_at + interval '1 millisecond')
WHERE t.id = ($1::uuid[])[1] AND t.attempt = ($2::int[])[1] AND t.claim_token = ($3::uuid[])[1]
  AND coalesce(t.phase, '') = 'running' AND t.open_step IS NULL
RETURNING t.claim_token, (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

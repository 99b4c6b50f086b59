-- The try failed and may be repeated: back to the queue, due after the backoff, which waits
-- in Postgres and not in a worker; `asleep` if it is long. Refused when that was the last try, or a stop is
-- requested. Fenced; the next claim raises the attempt.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS (
    SELECT claimed_at FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3
), r AS (
    UPDATE tasks SET
        phase = 'queued', lease_until = NULL, claimed_at = NULL, tries = tries + 1, last_error = $4,
        run_at = now() + $5::bigint * interval '1 millisecond', asleep = $5::bigint > 10000, hinted_at = NULL, hint_count = 0,
        work_ms_used = work_ms_used + $6
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
      AND stop_requested_at IS NULL AND tries + 1 < tries_max
    RETURNING id, attempt, claimed_by
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how, reason)
    SELECT r.id, r.attempt, r.claimed_by, false, mine.claimed_at, now(), 'retried', $7 FROM r, mine
    ON CONFLICT DO NOTHING
)
SELECT id FROM r

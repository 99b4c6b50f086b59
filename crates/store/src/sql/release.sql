-- A drained worker hands the job back: due at once, and no try is spent.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS (
    SELECT claimed_at FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3
), r AS (
    UPDATE tasks SET
        phase = CASE WHEN phase = 'running' THEN 'queued' ELSE phase END,
        lease_until = NULL, claimed_at = NULL, run_at = now(), hinted_at = now(), hint_epoch = $4, hint_count = 0,
        work_ms_used = work_ms_used + CASE WHEN phase = 'running' THEN $5::bigint ELSE 0 END
    WHERE id = $1 AND attempt = $2 AND claim_token = $3
      AND (coalesce(phase, '') = 'running' OR (coalesce(phase, '') = 'undoing' AND lease_until IS NOT NULL))
    RETURNING id, attempt, claimed_by, phase
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how)
    SELECT r.id, r.attempt, r.claimed_by, r.phase = 'undoing', mine.claimed_at, now(), 'released' FROM r, mine
    ON CONFLICT DO NOTHING
)
SELECT id FROM r

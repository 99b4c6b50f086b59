-- A claimed job whose contents this worker cannot open goes back, due later ($4 ms): another worker may have
-- the key by then, or this one. No try is spent. Fenced.
WITH mine AS (
    SELECT claimed_at FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3
), r AS (
    UPDATE tasks SET
        phase = CASE WHEN phase = 'running' THEN 'queued' ELSE phase END,
        asleep = CASE WHEN phase = 'running' THEN true ELSE asleep END,
        lease_until = NULL, claimed_at = NULL, run_at = now() + $4::bigint * interval '1 millisecond',
        hinted_at = NULL, hint_count = 0
    WHERE id = $1 AND attempt = $2 AND claim_token = $3
      AND (phase = 'running' OR (phase = 'undoing' AND lease_until IS NOT NULL))
    RETURNING id, attempt, claimed_by, phase
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how, reason)
    SELECT r.id, r.attempt, r.claimed_by, r.phase = 'undoing', mine.claimed_at, now(), 'released', $5 FROM r, mine
    ON CONFLICT DO NOTHING
)
SELECT id FROM r

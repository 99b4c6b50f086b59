-- A drained worker hands the job back: due at once, and no try is spent.
UPDATE tasks SET
    phase = CASE WHEN phase = 'running' THEN 'queued' ELSE phase END,
    lease_until = NULL, claimed_at = NULL, run_at = now(), hinted_at = now(), hint_epoch = $4, hint_count = 0,
    work_ms_used = work_ms_used + CASE WHEN phase = 'running' THEN $5::bigint ELSE 0 END
WHERE id = $1 AND attempt = $2 AND claim_token = $3
  AND (phase = 'running' OR (phase = 'undoing' AND lease_until IS NOT NULL))

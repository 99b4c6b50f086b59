-- A drained worker hands the job back: due at once, and no try is spent.
UPDATE tasks SET
    phase = 'queued', lease_until = NULL, run_at = now(), hinted_at = now(), hint_epoch = $4, hint_count = 0,
    work_ms_used = work_ms_used + $5
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'

-- The owning worker ends its own job (work limit). Fenced; the first reason wins.
UPDATE tasks SET
    stop_requested_at = coalesce(stop_requested_at, now()),
    stop_reason = coalesce(stop_reason, $4),
    stop_detail = CASE WHEN stop_requested_at IS NULL THEN $5 ELSE stop_detail END
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'

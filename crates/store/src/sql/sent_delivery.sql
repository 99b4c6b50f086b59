-- The receipt. A firing one may be sent again ($4 ms; NULL = never); a resolution is sent once.
UPDATE alert_deliveries SET
    delivered_at = CASE WHEN $3 = 'firing' THEN coalesce(delivered_at, now()) ELSE delivered_at END,
    resolved_at = CASE WHEN $3 = 'resolving' THEN now() END,
    state = CASE WHEN state = 'resolving' AND $3 = 'resolving' THEN 'done' ELSE state END,
    next_at = CASE WHEN state = $3 AND $3 = 'firing' THEN now() + $4::bigint * interval '1 millisecond'
                   WHEN state = $3 THEN NULL ELSE next_at END,
    tries = 0, last_error = NULL
WHERE alert_id = $1 AND receiver = $2

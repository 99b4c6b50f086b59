-- The receiver did not take it: again after a pause.
UPDATE alert_deliveries SET next_at = now() + $3::bigint * interval '1 millisecond', last_error = $4
WHERE alert_id = $1 AND receiver = $2

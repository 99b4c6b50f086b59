-- The receiver did not take it: again after a pause of $3 ms that doubles with every try, to $4 ms.
UPDATE alert_deliveries SET last_error = $5,
    next_at = now() + least($4::bigint, $3::bigint * power(2, least(tries, 16) - 1)) * interval '1 millisecond'
WHERE alert_id = $1 AND receiver = $2

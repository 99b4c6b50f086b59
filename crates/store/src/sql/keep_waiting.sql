-- Some questions are answered, others not: show the others only.
UPDATE tasks SET
    input_requests = $2, input_deadline_at = now() + $3::bigint * interval '1 millisecond',
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND phase = 'parked'

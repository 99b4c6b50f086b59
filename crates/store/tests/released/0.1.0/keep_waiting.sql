-- Some questions are answered, others not: show the others only. The deadline is read and not
-- computed, so that it is to the microsecond the one by which outstanding.sql judges.
UPDATE tasks SET
    input_requests = $2,
    input_deadline_at = (SELECT min(deadline_at) FROM inputs WHERE task_id = $1 AND answered_at IS NULL),
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND phase = 'parked'

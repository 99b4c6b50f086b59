-- I9. The last question is answered: the task is queued by the transaction that stored the
-- answer, so nothing but a worker is needed for it to go on.
UPDATE tasks SET
    status = 'working', phase = 'queued', input_requests = NULL, input_deadline_at = NULL,
    parked_for = NULL, run_at = now(), hint_count = 0, hint_epoch = $2,
    hinted_at = CASE WHEN $2::text IS NOT NULL THEN now() END,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND phase = 'parked'

-- I9. The last question is answered: the task is queued by the transaction that stored the
-- answer, so nothing but a worker is needed for it to go on. $3 is the trace of what answered; a
-- context that jsonb can't hold (an old release kept any text) stays as it is.
UPDATE tasks SET
    status = 'working', phase = 'queued', input_requests = NULL, input_deadline_at = NULL,
    parked_for = NULL, run_at = now(), asleep = false, hint_count = 0, hint_epoch = $2,
    hinted_at = CASE WHEN $2::text IS NOT NULL THEN now() END,
    trace_context = CASE
        WHEN $3::text IS NULL AND trace_context IS NULL THEN NULL
        WHEN position('\u0000' IN convert_from(trace_context, 'UTF8')) > 0 THEN trace_context
        ELSE convert_to((coalesce(convert_from(trace_context, 'UTF8'), '{}')::jsonb
            || jsonb_build_object('answered', $3::jsonb))::text, 'UTF8') END,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND coalesce(phase, '') = 'parked'

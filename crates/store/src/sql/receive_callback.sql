-- I2, I6. The result that a task waits for, or will wait for: the first one is kept, and the task that
-- waits is due at once. That it came proves that the step which announced the address has happened, so
-- a worker that was lost in the middle of it leaves no doubt, and nobody acts again. Runs under the
-- lock of lock_called.sql. $6 as $3 of resume.sql.
WITH c AS (
    UPDATE callbacks SET response = $3, response_digest = $4, received_at = clock_timestamp()
    WHERE task_id = $1 AND key = $2 AND received_at IS NULL
    RETURNING task_id, step, step_output
), s AS (
    UPDATE steps SET
        state = 'finished', output = c.step_output, finished_at = now(),
        undo_state = CASE WHEN steps.undo IS NOT NULL THEN 'pending' END
    FROM c WHERE steps.task_id = c.task_id AND steps.key = c.step AND steps.state = 'started'
    RETURNING steps.key, steps.undo IS NOT NULL AS undoable
)
UPDATE tasks t SET
    open_step = CASE WHEN t.open_step = $2 OR t.open_step = c.step THEN NULL ELSE t.open_step END,
    has_undo = t.has_undo OR coalesce((SELECT undoable FROM s), false),
    run_at = CASE WHEN t.phase = 'queued' THEN now() ELSE t.run_at END,
    asleep = false,
    hint_count = CASE WHEN t.phase = 'queued' THEN 0 ELSE t.hint_count END,
    hint_epoch = CASE WHEN t.phase = 'queued' THEN $5::text ELSE t.hint_epoch END,
    hinted_at = CASE WHEN t.phase <> 'queued' THEN t.hinted_at WHEN $5::text IS NOT NULL THEN now() END,
    trace_context = CASE
        WHEN $6::text IS NULL AND t.trace_context IS NULL THEN NULL
        WHEN position('\u0000' IN convert_from(t.trace_context, 'UTF8')) > 0 THEN t.trace_context
        ELSE convert_to((coalesce(convert_from(t.trace_context, 'UTF8'), '{}')::jsonb
            || jsonb_build_object('answered', $6::jsonb))::text, 'UTF8') END
FROM c WHERE t.id = c.task_id
RETURNING t.phase

-- An outcome that was delivered inline, without a key and without a handle: no client can
-- ever name this task, so it goes without a tombstone.
WITH gone AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = ANY($1::uuid[]) AND phase IS NULL AND handed_out_at IS NULL AND idempotency_key IS NULL
    ORDER BY id FOR UPDATE
), s AS (DELETE FROM steps USING gone WHERE steps.task_id = gone.id),
   i AS (DELETE FROM inputs USING gone WHERE inputs.task_id = gone.id)
DELETE FROM tasks USING gone WHERE tasks.id = gone.id

-- I4. The act itself reported that it did not happen: as if it had never begun, so that a
-- later try may act. Only this very act: a repeat that comes late must not erase that another
-- one has begun.
WITH t AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
    FOR NO KEY UPDATE
), s AS (
    DELETE FROM steps USING t
    WHERE steps.task_id = t.id AND steps.key = $4 AND steps.act = $5 AND steps.state = 'started'
    RETURNING steps.task_id
)
UPDATE tasks SET open_step = nullif(tasks.open_step, $4) FROM s WHERE tasks.id = s.task_id

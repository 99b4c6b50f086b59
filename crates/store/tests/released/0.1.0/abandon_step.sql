-- I4. The act itself reported that it did not happen: as if it had never begun, so that a
-- later try may act.
WITH t AS (
    UPDATE tasks SET open_step = nullif(open_step, $4)
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
    RETURNING id
)
DELETE FROM steps USING t
WHERE steps.task_id = t.id AND steps.key = $4 AND steps.claim_token = $3 AND steps.state = 'started'

-- I3, I4. The step acted: keep its output, so that no replay acts again. Allowed after a
-- stop was requested (it did happen). Repeatable by the same token.
WITH t AS (
    UPDATE tasks SET open_step = nullif(open_step, $4)
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
    RETURNING id
)
UPDATE steps SET state = 'finished', output = $5, finished_at = coalesce(steps.finished_at, now())
FROM t WHERE steps.task_id = t.id AND steps.key = $4 AND steps.claim_token = $3

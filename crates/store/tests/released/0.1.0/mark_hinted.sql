-- These jobs' hints are in Redis now. Rows are locked in id order.
WITH hinted AS MATERIALIZED (
    SELECT t.id, v.epoch FROM tasks t
    JOIN unnest($1::uuid[], $2::text[]) AS v(id, epoch) ON t.id = v.id
    WHERE t.phase IN ('queued', 'running')
    ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET hinted_at = now(), hint_epoch = hinted.epoch, hint_count = least(t.hint_count + 1, 30)
FROM hinted WHERE t.id = hinted.id

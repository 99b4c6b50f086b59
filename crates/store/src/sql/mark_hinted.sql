-- These jobs' hints are in Redis now. Rows are locked in id order. A job that was claimed since it
-- was found ($3 is its attempt then; NULL = any) has used its hint up: it may be queued again by
-- now, and waits for another one.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH hinted AS MATERIALIZED (
    SELECT t.id, v.epoch FROM tasks t
    JOIN unnest($1::uuid[], $2::text[], $3::int[]) AS v(id, epoch, attempt) ON t.id = v.id
    WHERE coalesce(t.phase, '') IN ('queued', 'running', 'undoing') AND t.attempt = coalesce(v.attempt, t.attempt)
    ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET hinted_at = now(), hint_epoch = hinted.epoch, hint_count = least(t.hint_count + 1, 30)
FROM hinted WHERE t.id = hinted.id

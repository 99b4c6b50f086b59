-- A gateway with a caller waiting keeps the task from being stopped as abandoned. Rows are
-- locked in id order: two gateways may hold the same tasks.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH held AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = ANY($1::uuid[]) AND coalesce(phase, '') <> '' AND handed_out_at IS NULL
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE tasks t SET held_until = greatest(t.held_until, now() + $2::bigint * interval '1 millisecond')
FROM held WHERE t.id = held.id

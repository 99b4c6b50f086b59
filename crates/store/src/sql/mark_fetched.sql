-- A terminal outcome reached its owner. Only the first time counts (I9). Rows are locked in id
-- order.
WITH fetched AS MATERIALIZED (
    SELECT id FROM tasks
    WHERE id = ANY((SELECT $1::uuid[])::uuid[]) AND phase IS NULL AND first_fetched_at IS NULL
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE tasks t SET first_fetched_at = now() FROM fetched WHERE t.id = fetched.id

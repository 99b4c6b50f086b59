-- A terminal outcome reached its owner. Only the first time counts (I9).
UPDATE tasks SET first_fetched_at = now()
WHERE id = ANY($1::uuid[]) AND phase IS NULL AND first_fetched_at IS NULL

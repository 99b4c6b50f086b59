-- A gateway with a caller waiting keeps the task from being stopped as abandoned.
UPDATE tasks SET held_until = greatest(held_until, now() + $2::bigint * interval '1 millisecond')
WHERE id = ANY($1::uuid[]) AND phase IS NOT NULL AND handed_out_at IS NULL

-- Tasks whose key one of these ($1) wraps, and no row that is left out: for a rotation.
SELECT id, sealed_by, data_key FROM tasks
WHERE sealed_by = ANY($1::text[]) AND id <> ALL($3::uuid[])
ORDER BY sealed_by, id LIMIT $2

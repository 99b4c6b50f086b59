-- The same key of each task, wrapped by another key ($4). Compared with what it was wrapped as, so that two who
-- do it at once write it once; a row that changes otherwise meanwhile loses nothing. Rows are locked in id order.
WITH mine AS MATERIALIZED (
    SELECT t.id, v.after FROM tasks t
    JOIN unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS v(id, before, after) ON t.id = v.id AND t.data_key = v.before
    ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET data_key = m.after, sealed_by = $4 FROM mine m WHERE t.id = m.id

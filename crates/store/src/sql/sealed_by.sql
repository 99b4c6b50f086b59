-- How many tasks ($1 at most of each) each key wraps the keys of; from key to key within the index.
WITH RECURSIVE keys AS (
    (SELECT sealed_by FROM tasks WHERE sealed_by IS NOT NULL ORDER BY sealed_by LIMIT 1)
    UNION ALL
    SELECT (SELECT t.sealed_by FROM tasks t WHERE t.sealed_by IS NOT NULL AND t.sealed_by > k.sealed_by
            ORDER BY t.sealed_by LIMIT 1)
    FROM keys k WHERE k.sealed_by IS NOT NULL
)
SELECT k.sealed_by, (SELECT count(*) FROM (
    SELECT FROM tasks t WHERE t.sealed_by = k.sealed_by LIMIT $1) AS counted) AS tasks
FROM keys k WHERE k.sealed_by IS NOT NULL

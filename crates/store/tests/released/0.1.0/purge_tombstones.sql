-- After this, an expired id is as unknown as one that never existed.
DELETE FROM tombstones WHERE task_id IN (
    SELECT task_id FROM tombstones WHERE purge_at <= now() ORDER BY purge_at LIMIT $1)

-- A worker's sign of life, for operators. Those not heard of for a day are forgotten; rows that
-- another worker is deleting are left to it.
WITH old AS MATERIALIZED (
    SELECT name FROM workers WHERE seen_at < now() - interval '1 day' AND name <> $1
    ORDER BY name FOR UPDATE SKIP LOCKED
), forgotten AS (DELETE FROM workers USING old WHERE workers.name = old.name)
INSERT INTO workers (name, host, release, slots, tools, started_at, seen_at)
VALUES ($1, $2, $3, $4, $5, now(), now())
ON CONFLICT (name) DO UPDATE SET slots = $4, tools = $5, seen_at = now()

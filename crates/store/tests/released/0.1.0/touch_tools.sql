-- A worker's sign of life for what it serves, with what it measured since the last one
-- (decayed averages, ms). Every worker does this all the time: rows are locked in one order.
WITH seen AS MATERIALIZED (
    SELECT t.name, t.version, v.run_ms, v.change_ms FROM tools t
    JOIN unnest($1::text[], $2::int[], $3::float8[], $4::float8[]) AS v(name, version, run_ms, change_ms)
      ON t.name = v.name AND t.version = v.version
    ORDER BY t.name, t.version FOR NO KEY UPDATE OF t
)
UPDATE tools SET
    last_seen_at = now(),
    run_ms = CASE WHEN seen.run_ms IS NULL THEN tools.run_ms ELSE coalesce(tools.run_ms * 0.8 + seen.run_ms * 0.2, seen.run_ms) END,
    change_ms = CASE WHEN seen.change_ms IS NULL THEN tools.change_ms ELSE coalesce(tools.change_ms * 0.8 + seen.change_ms * 0.2, seen.change_ms) END
FROM seen WHERE tools.name = seen.name AND tools.version = seen.version

-- A worker's sign of life for what it serves, with what it measured since the last one
-- (decayed averages, ms).
UPDATE tools SET
    last_seen_at = now(),
    run_ms = CASE WHEN v.run_ms IS NULL THEN tools.run_ms ELSE coalesce(tools.run_ms * 0.8 + v.run_ms * 0.2, v.run_ms) END,
    change_ms = CASE WHEN v.change_ms IS NULL THEN tools.change_ms ELSE coalesce(tools.change_ms * 0.8 + v.change_ms * 0.2, v.change_ms) END
FROM unnest($1::text[], $2::int[], $3::float8[], $4::float8[]) AS v(name, version, run_ms, change_ms)
WHERE tools.name = v.name AND tools.version = v.version

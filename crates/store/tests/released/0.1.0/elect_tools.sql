-- One version of each tool is current, of the listed ones: the highest that a worker was seen
-- serving lately; while none is alive, the one that was. Runs under the lock of lock_tools.sql.
WITH candidates AS (
    SELECT name, version, current, listed, last_seen_at > now() - $2::bigint * interval '1 millisecond' AS alive
    FROM tools WHERE name = ANY($1::text[])
), best AS (
    SELECT DISTINCT ON (name) name, version FROM candidates
    ORDER BY name, listed DESC, alive DESC, (current AND NOT alive) DESC, version DESC
), off AS (
    UPDATE tools SET current = false FROM best
    WHERE tools.name = best.name AND tools.version <> best.version AND tools.current
)
SELECT best.name, best.version FROM best
JOIN tools t ON t.name = best.name AND t.version = best.version
WHERE NOT t.current

-- One version of each tool is current: the highest that a worker was seen serving lately;
-- while none is alive, the one that was. Runs under the lock of lock_tools.sql.
WITH best AS (
    SELECT DISTINCT ON (name) name, version FROM tools
    WHERE name = ANY($1::text[])
    ORDER BY name, last_seen_at > now() - $2::bigint * interval '1 millisecond' DESC, current AND last_seen_at <= now() - $2::bigint * interval '1 millisecond' DESC, version DESC
), off AS (
    UPDATE tools SET current = false FROM best
    WHERE tools.name = best.name AND tools.version <> best.version AND tools.current
    RETURNING tools.name
)
SELECT best.name, best.version FROM best
JOIN tools t ON t.name = best.name AND t.version = best.version
WHERE NOT t.current

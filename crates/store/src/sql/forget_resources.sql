-- What nobody listens to any more, and changes so old ($1 ms) that every listener has looked since, at most
-- $2 of each.
WITH quiet AS MATERIALIZED (
    SELECT uri_digest FROM wanted_resources WHERE until < now()
    ORDER BY uri_digest LIMIT $2 FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
    SELECT uri_digest FROM resource_updates WHERE updated_at < now() - $1::bigint * interval '1 millisecond'
    ORDER BY uri_digest LIMIT $2 FOR UPDATE SKIP LOCKED
), unwanted AS (
    DELETE FROM wanted_resources w USING quiet WHERE w.uri_digest = quiet.uri_digest RETURNING 1
), settled AS (
    DELETE FROM resource_updates u USING old WHERE u.uri_digest = old.uri_digest RETURNING 1
)
SELECT (SELECT count(*) FROM unwanted) + (SELECT count(*) FROM settled) AS forgotten

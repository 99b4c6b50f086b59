-- Somebody listens to these resources ($1 digests, $2 URIs, $3 their providers), for $4 ms or until
-- this is said again. Every gateway does this all the time: rows are locked in one order. Says which
-- were not wanted before.
WITH asked AS MATERIALIZED (
    SELECT digest, uri, provider FROM unnest($1::bytea[], $2::text[], $3::text[]) AS a(digest, uri, provider)
    ORDER BY digest
), before AS MATERIALIZED (
    SELECT w.uri_digest FROM wanted_resources w JOIN asked a ON a.digest = w.uri_digest
    WHERE w.until > now() AND w.provider = a.provider
    ORDER BY w.uri_digest FOR NO KEY UPDATE OF w
), written AS (
    INSERT INTO wanted_resources (uri_digest, uri, provider, until)
    SELECT digest, uri, provider, now() + $4::bigint * interval '1 millisecond' FROM asked ORDER BY digest
    ON CONFLICT (uri_digest) DO UPDATE SET provider = excluded.provider,
        until = greatest(wanted_resources.until, excluded.until)
)
SELECT count(*) AS fresh FROM asked WHERE digest NOT IN (SELECT uri_digest FROM before)

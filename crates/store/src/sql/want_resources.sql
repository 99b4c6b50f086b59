-- Somebody listens to these resources ($1 keys, which sort by place; $2 URIs, $3 their providers), for $4 ms
-- or until this is said again. Of each provider the first $5 by key count, and $6 bytes of their URIs
-- (as wanted_resources.sql has it); what does not count is not written, so there are never many more. Every
-- gateway does this all the time: rows are locked in one order. Says of each whether it counts, and whether
-- somebody listened to it before.
WITH asked AS MATERIALIZED (
    SELECT key, uri, provider FROM unnest($1::bytea[], $2::text[], $3::text[]) AS a(key, uri, provider)
    ORDER BY key
), before AS MATERIALIZED (
    SELECT provider, uri_digest AS key, uri FROM wanted_resources
    WHERE until > now() AND provider IN (SELECT provider FROM asked)
), live AS MATERIALIZED (
    SELECT provider, key, uri FROM before UNION SELECT provider, key, uri FROM asked
), placed AS MATERIALIZED (
    SELECT provider, key, uri, row_number() OVER first AS place, sum(octet_length(uri)) OVER first AS bytes
    FROM live WINDOW first AS (PARTITION BY provider ORDER BY key ROWS UNBOUNDED PRECEDING)
), counted AS MATERIALIZED (
    SELECT provider, key, uri FROM placed WHERE place <= $5::bigint AND bytes <= $6::bigint
), written AS (
    INSERT INTO wanted_resources (uri_digest, uri, provider, until)
    SELECT key, uri, provider, now() + $4::bigint * interval '1 millisecond' FROM asked
    WHERE (key, provider) IN (SELECT key, provider FROM counted) ORDER BY key
    ON CONFLICT (uri_digest) DO UPDATE SET provider = excluded.provider,
        until = greatest(wanted_resources.until, excluded.until)
)
SELECT key, (uri, provider) IN (SELECT uri, provider FROM counted) AS counts,
    (uri, provider) IN (SELECT uri, provider FROM before) AS known
FROM asked

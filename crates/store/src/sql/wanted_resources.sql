-- The resources of these providers ($1) that somebody listens to: of each the first $2 by key, and $3 bytes of
-- their URIs. (A URI stands there once for each place that it has with a listener.)
SELECT provider, uri FROM (
    SELECT provider, uri, row_number() OVER first AS place, sum(octet_length(uri)) OVER first AS bytes
    FROM wanted_resources WHERE provider = ANY($1::text[]) AND until > now()
    WINDOW first AS (PARTITION BY provider ORDER BY uri_digest ROWS UNBOUNDED PRECEDING)
) placed
WHERE place <= $2::bigint AND bytes <= $3::bigint

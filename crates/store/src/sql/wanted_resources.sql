-- The resources of these providers ($1) that somebody listens to, at most $2.
SELECT provider, uri FROM wanted_resources
WHERE provider = ANY($1::text[]) AND until > now()
ORDER BY provider, uri_digest LIMIT $2

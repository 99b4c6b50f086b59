-- When these resources ($1, digests of their URIs) last changed, in microseconds; none for those of
-- which nobody has told.
SELECT uri_digest, (extract(epoch FROM updated_at) * 1000000)::bigint AS updated_us
FROM resource_updates WHERE uri_digest = ANY($1::bytea[])

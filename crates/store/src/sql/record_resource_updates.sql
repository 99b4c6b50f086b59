-- Resources ($1, digests of their URIs, sorted) have changed. The time is that of the statement and
-- not of a transaction: two changes never look like one.
INSERT INTO resource_updates (uri_digest, updated_at)
SELECT digest, clock_timestamp() FROM unnest($1::bytea[]) AS digest
ON CONFLICT (uri_digest) DO UPDATE SET updated_at = greatest(clock_timestamp(), resource_updates.updated_at + interval '1 microsecond')

-- What no worker has provided for a stated time ($1 ms) is not listed any more.
UPDATE providers SET listed = false, changed_at = now()
WHERE listed AND last_seen_at < now() - $1::bigint * interval '1 millisecond'
RETURNING name, version

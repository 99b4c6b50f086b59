-- Versions that no worker has served for a stated time ($1 ms) are not listed any more. The row stays,
-- and so does what is current: tasks under way go by it. Runs under the lock of lock_tools.sql.
UPDATE tools SET listed = false, changed_at = now()
WHERE listed AND last_seen_at < now() - $1::bigint * interval '1 millisecond'
RETURNING name, version

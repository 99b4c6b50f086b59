-- The tool is gone from its source (not merely without a worker): no longer listed.
UPDATE tools SET listed = false, changed_at = now()
WHERE name = $1 AND version = $2 AND listed

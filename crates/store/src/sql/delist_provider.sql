-- The provider is gone from its worker's set (not merely without a worker): no longer listed.
UPDATE providers SET listed = false, changed_at = now()
WHERE name = $1 AND version = $2 AND listed

-- I3. The owner's way to the lock of its row: whoever comes second sees what the first one did.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
SELECT id FROM tasks
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
FOR NO KEY UPDATE

-- I3. The owner's way to the lock of its row: whoever comes second sees what the first one did.
SELECT id FROM tasks
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
FOR NO KEY UPDATE

-- First statement of every short transaction that decides from the task row and writes
-- elsewhere: whoever comes second waits here and sees what the first one did. `stopping`: told
-- to stop, or past its TTL, though no sweep has come by yet.
SELECT id, phase, tool, tool_version,
       stop_requested_at IS NOT NULL OR coalesce(expires_at <= now(), false) AS stopping
FROM tasks
WHERE id = $1 AND issuer = $2 AND subject = $3
FOR NO KEY UPDATE

-- First statement of every short transaction that decides from the task row and writes
-- elsewhere: whoever comes second waits here and sees what the first one did.
SELECT id, status, phase, stop_reason, tool, tool_version FROM tasks
WHERE id = $1 AND issuer = $2 AND subject = $3
FOR NO KEY UPDATE

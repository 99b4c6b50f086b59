-- As lock_task, for who answers: the owner, or one who may answer for others of its tenant ($4). A tenant
-- is its issuer's. `own`: it is the caller's own task.
SELECT id, phase, tool, tool_version, data_key, sealed_by, subject = $3 AS own,
       stop_requested_at IS NOT NULL OR coalesce(expires_at <= now(), false) AS stopping
FROM tasks
WHERE id = $1 AND issuer = $2 AND (subject = $3 OR tenant = $4)
FOR NO KEY UPDATE

-- A key whose task is not there: nothing of this program leaves one behind, but a database that was
-- mended by hand, or restored in part, may. Key and task are made, and go, in one statement.
DELETE FROM idempotency_keys k
WHERE k.issuer = $1 AND k.subject = $2 AND k.tool = $3 AND k.key = $4
  AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task_id)

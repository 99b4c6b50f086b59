-- A principal's tasks that are over, with all that belongs to them; callbacks and attempts go with their task.
-- No tombstone: their ids are as if they had never been. What stays is that these ids were erased, and whose
-- they were stands nowhere. A killed command leaves whole tasks behind.
WITH gone AS MATERIALIZED (
    SELECT id, issuer, subject, tool, idempotency_key FROM tasks
    WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
      AND issuer = $1 AND subject = $2 AND phase IS NULL
    ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
), s AS (DELETE FROM steps USING gone WHERE steps.task_id = gone.id),
   i AS (DELETE FROM inputs USING gone WHERE inputs.task_id = gone.id),
   k AS (DELETE FROM idempotency_keys k USING gone WHERE gone.idempotency_key IS NOT NULL
         AND k.issuer = gone.issuer AND k.subject = gone.subject AND k.tool = gone.tool
         AND k.key = gone.idempotency_key AND k.task_id = gone.id),
   a AS (DELETE FROM alerts USING gone WHERE alerts.task_id = gone.id),
   d AS (DELETE FROM alert_deliveries d USING gone, alerts WHERE alerts.task_id = gone.id AND d.alert_id = alerts.id),
   w AS (INSERT INTO audit_tasks (audit_id, task_id, outcome, at) SELECT $4, id, 'erased', now() FROM gone
         ON CONFLICT (audit_id, task_id) DO UPDATE SET outcome = 'erased')
DELETE FROM tasks USING gone WHERE tasks.id = gone.id

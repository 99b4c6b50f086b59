-- What is left of a principal when its tasks are gone: tombstones, alerts of purged tasks, keys without a task;
-- and its name ($3) in what operators and delegates did becomes a pseudonym ($4). A filter that named no issuer
-- meant this one as well. Where it answered for others, its tenant goes as well: a tenant may be one person.
WITH t AS (DELETE FROM tombstones WHERE issuer = $1 AND subject = $2),
   k AS (DELETE FROM idempotency_keys k WHERE k.issuer = $1 AND k.subject = $2
         AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = k.task_id)),
   a AS (DELETE FROM alerts WHERE issuer = $1 AND subject = $2
         AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = alerts.task_id)),
   d AS (DELETE FROM alert_deliveries d USING alerts WHERE alerts.issuer = $1 AND alerts.subject = $2
         AND d.alert_id = alerts.id AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = alerts.task_id))
UPDATE audit SET
    operator = CASE WHEN operator = $3 THEN $4 ELSE operator END,
    target = CASE WHEN operator = $3 AND command = 'tasks/update' THEN target - 'tenant'
        WHEN target #>> '{filter,principal}' = $2 AND coalesce(target #>> '{filter,issuer}', $1) = $1
        THEN jsonb_set(target, '{filter,principal}', to_jsonb($4::text)) ELSE target END
WHERE operator = $3 OR (target #>> '{filter,principal}' = $2 AND coalesce(target #>> '{filter,issuer}', $1) = $1)

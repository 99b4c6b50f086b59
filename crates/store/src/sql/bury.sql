-- An operator ends a finished task's time: what is kept of it goes now, and a tombstone stays as after
-- its TTL. Its owner never sees a TTL that shrank.
WITH gone AS MATERIALIZED (
    SELECT id, issuer, subject, tenant, tool, idempotency_key, status, created_at, finished_at, handed_out_at
    FROM tasks WHERE id = $1 AND phase IS NULL FOR UPDATE
), x AS (
    INSERT INTO tombstones (task_id, issuer, subject, tenant, tool, final_status, created_at, finished_at, expired_at, purge_at)
    SELECT id, issuer, subject, tenant, tool, status, created_at, finished_at, now(), now() + $2::bigint * interval '1 millisecond'
    FROM gone WHERE handed_out_at IS NOT NULL
    ON CONFLICT DO NOTHING
), s AS (DELETE FROM steps USING gone WHERE steps.task_id = gone.id),
   i AS (DELETE FROM inputs USING gone WHERE inputs.task_id = gone.id),
   k AS (DELETE FROM idempotency_keys k USING gone WHERE gone.idempotency_key IS NOT NULL
         AND k.issuer = gone.issuer AND k.subject = gone.subject AND k.tool = gone.tool
         AND k.key = gone.idempotency_key AND k.task_id = gone.id)
DELETE FROM tasks USING gone WHERE tasks.id = gone.id

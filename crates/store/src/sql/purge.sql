-- I11. Finished tasks past their TTL become tombstones, with all that belongs to them, in
-- one statement; a killed sweep leaves whole tasks behind. What was never handed out and has
-- no key leaves nothing: no client can name it.
WITH gone AS MATERIALIZED (
    SELECT id, issuer, subject, tenant, tool, idempotency_key, status, stop_reason, created_at, finished_at, expires_at, handed_out_at
    FROM tasks WHERE expires_at <= now() AND phase IS NULL
      -- A failure is judged before it goes: was it read, or must somebody be told?
      AND (alerted_at IS NOT NULL OR first_fetched_at IS NOT NULL OR NOT (status = 'failed' OR is_error))
      AND ($3::uuid IS NULL OR id = $3)
    ORDER BY expires_at LIMIT $1
    FOR UPDATE SKIP LOCKED
), x AS (
    INSERT INTO tombstones (task_id, issuer, subject, tenant, tool, final_status, created_at, finished_at, expired_at, purge_at)
    SELECT id, issuer, subject, tenant, tool, status, created_at, finished_at, expires_at, now() + $2::bigint * interval '1 millisecond'
    FROM gone WHERE handed_out_at IS NOT NULL
    ON CONFLICT DO NOTHING
), s AS (DELETE FROM steps USING gone WHERE steps.task_id = gone.id),
   i AS (DELETE FROM inputs USING gone WHERE inputs.task_id = gone.id),
   k AS (DELETE FROM idempotency_keys k USING gone WHERE gone.idempotency_key IS NOT NULL
         AND k.issuer = gone.issuer AND k.subject = gone.subject AND k.tool = gone.tool
         AND k.key = gone.idempotency_key AND k.task_id = gone.id)
DELETE FROM tasks USING gone WHERE tasks.id = gone.id
-- For counting: what expired while it was live was counted then, and what nobody can name ran out of no time.
RETURNING CASE WHEN gone.stop_reason IS DISTINCT FROM 'expired'
    AND (gone.handed_out_at IS NOT NULL OR gone.idempotency_key IS NOT NULL) THEN gone.status END AS expired

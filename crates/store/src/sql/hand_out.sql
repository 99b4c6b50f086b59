-- I1. Before a handle leaves the process its row says so, or the handle stays: refused when
-- the task is over or told to stop and was never handed out (the caller then gets the
-- outcome). A task already handed out (a repeat by key) stays handed out.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
UPDATE tasks t SET handed_out_at = coalesce(t.handed_out_at, now())
WHERE t.id = $1 AND coalesce(t.phase, '') <> ''
  AND (t.stop_requested_at IS NULL OR t.handed_out_at IS NOT NULL)
RETURNING t.id, t.tool, t.tool_version, t.status, t.status_message, t.created_at, t.last_updated_at,
       (extract(epoch FROM t.expires_at - t.created_at) * 1000)::bigint AS ttl_ms,
       t.input_requests, t.result, t.error, t.phase, t.stop_reason, t.parked_for, t.rounds,
       t.first_fetched_at IS NOT NULL AS fetched, t.handed_out_at IS NOT NULL AS handed_out,
       t.idempotency_key IS NOT NULL AS keyed, t.data_key, t.sealed_by

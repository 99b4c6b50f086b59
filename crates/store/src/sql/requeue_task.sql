-- An operator wants a waiting job to run now: due at once, whatever is left of its backoff, and as if
-- it had never been hinted.
UPDATE tasks t SET run_at = least(run_at, now()), asleep = false, hinted_at = NULL, hint_epoch = NULL, hint_count = 0
WHERE t.id = $1 AND t.lease_until IS NULL
  AND (t.phase = 'undoing' OR (t.phase = 'queued' AND t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())))
RETURNING t.tool, CASE WHEN t.journaled THEN t.tool_version
    ELSE coalesce((SELECT c.version FROM tools c WHERE c.name = t.tool AND c.current), t.tool_version) END AS version

-- Due jobs by tool of which Redis, as it is now ($1: its epochs), has not been told, and for how long
-- (ms) the oldest has been due. While reconcile works this is seconds. Not those whose tool's jobs
-- are paused: they get no hint.
SELECT t.tool, count(*) AS jobs, max((extract(epoch FROM now() - t.run_at) * 1000)::bigint) AS waited_ms
FROM tasks t LEFT JOIN tool_pauses p ON p.tool = t.tool
WHERE t.phase IN ('queued', 'undoing') AND t.lease_until IS NULL AND t.run_at <= now()
  AND (t.phase = 'undoing' OR (t.stop_requested_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
       AND p.jobs IS NOT TRUE))
  AND (t.hinted_at IS NULL OR t.hint_epoch IS NULL OR t.hint_epoch <> ALL($1::text[]))
GROUP BY t.tool

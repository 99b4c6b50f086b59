-- I5, I6. Ends tasks that were told to stop, or that used up their tries, once nothing runs:
-- queued or parked, or the lease ran out, or the owner itself (attempt and token given) says
-- the work has stopped. An open step means the act may still land: failed, never cancelled.
WITH v AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS v(id, attempt, claim_token)
), stopped AS MATERIALIZED (
    -- All that is decided from is read under the lock: a statement reads unlocked rows as of its
    -- start, which may be before the step was opened that the lock waited for.
    SELECT t.id, t.open_step, t.work_ms_max, t.stop_detail, t.tool_version, t.tries, t.last_error, CASE
        WHEN t.open_step IS NOT NULL THEN 'step_in_doubt'
        WHEN t.stop_reason = 'expired' THEN 'task_expired'
        WHEN t.stop_reason IS NOT NULL THEN t.stop_reason
        ELSE 'attempts_exhausted' END AS reason
    FROM tasks t JOIN v ON t.id = v.id
    WHERE (t.stop_requested_at IS NOT NULL AND (t.phase IN ('queued', 'parked')
            OR (t.phase = 'running' AND t.attempt = v.attempt AND t.claim_token = v.claim_token)))
       OR (t.phase = 'running' AND t.lease_until < now()
            AND (t.stop_requested_at IS NOT NULL OR t.tries + 1 >= t.tries_max)
            AND $4::bigint >= $5::bigint AND pg_postmaster_start_time() < now() - $5::bigint * interval '1 millisecond')
    ORDER BY t.id FOR NO KEY UPDATE OF t
), said AS (
    SELECT id, reason, open_step, CASE reason
        WHEN 'step_in_doubt' THEN format('step "%s" started and its end is unknown: it may have taken effect', open_step)
        WHEN 'task_expired' THEN 'the task expired before its work was done: ttlMs ran out'
        WHEN 'work_limit' THEN format('the work was stopped after its limit of %s ms', work_ms_max)
        WHEN 'input_deadline' THEN coalesce(stop_detail, 'a question went unanswered')
        WHEN 'version_gone' THEN format('no worker serves version %s of this tool any more', tool_version)
        WHEN 'attempts_exhausted' THEN format('gave up after %s tries: %s', tries + 1, coalesce(last_error, 'the worker was lost'))
        ELSE 'cancelled' END AS message
    FROM stopped
)
UPDATE tasks t SET
    status = CASE WHEN said.reason IN ('cancelled', 'abandoned') THEN 'cancelled' ELSE 'failed' END,
    status_message = said.message,
    error = CASE WHEN said.reason NOT IN ('cancelled', 'abandoned') THEN convert_to(jsonb_build_object(
        'code', -32603, 'message', said.message,
        'data', jsonb_strip_nulls(jsonb_build_object('reason', said.reason, 'step', said.open_step)))::text, 'UTF8') END,
    tries = t.tries + CASE WHEN said.reason = 'attempts_exhausted' THEN 1 ELSE 0 END,
    phase = NULL, lease_until = NULL, input_requests = NULL, input_deadline_at = NULL, finished_at = now(),
    expires_at = CASE WHEN said.reason = 'task_expired' OR t.expires_at <= now()
        THEN greatest(t.expires_at, date_trunc('milliseconds', now()) + $6::bigint * interval '1 millisecond')
        ELSE t.expires_at END,
    last_updated_at = greatest(date_trunc('milliseconds', now()), t.last_updated_at + interval '1 millisecond')
FROM said WHERE t.id = said.id
RETURNING t.id, said.reason

-- I5, I6. Ends tasks that were told to stop, that used up their tries, or whose loss fails them,
-- once nothing runs: queued or parked, or the lease ran out, or the owner itself (attempt and
-- token given) says the work has stopped. An open step means the act may still land: failed,
-- never cancelled. A task whose finished steps declared an undo goes on as `undoing` first.
WITH v AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::uuid[]) AS v(id, attempt, claim_token)
), stopped AS MATERIALIZED (
    -- All that is decided from is read under the lock: a statement reads unlocked rows as of its
    -- start, which may be before the step was opened that the lock waited for.
    SELECT t.id, t.open_step, t.work_ms_max, t.stop_detail, t.tool_version, t.tries, t.last_error,
        t.has_undo, t.phase, t.stop_reason, t.attempt, t.claimed_by, t.claimed_at,
        CASE WHEN t.lease_until < now() THEN t.lease_until END AS lost_at, CASE
        WHEN t.open_step IS NOT NULL THEN 'step_in_doubt'
        WHEN t.stop_reason = 'expired' THEN 'task_expired'
        WHEN t.stop_reason IS NOT NULL THEN t.stop_reason
        WHEN t.lost_fails THEN 'worker_lost'
        ELSE 'attempts_exhausted' END AS reason
    FROM tasks t JOIN v ON t.id = v.id
    WHERE (t.stop_requested_at IS NOT NULL AND (t.phase IN ('queued', 'parked')
            OR (t.phase = 'running' AND t.attempt = v.attempt AND t.claim_token = v.claim_token)))
       OR (t.phase = 'running' AND t.lease_until < now()
            AND (t.stop_requested_at IS NOT NULL OR t.lost_fails OR t.tries + 1 >= t.tries_max)
            AND $4::bigint >= $5::bigint AND pg_postmaster_start_time() < now() - $5::bigint * interval '1 millisecond')
    ORDER BY t.id FOR NO KEY UPDATE OF t
), said AS (
    SELECT stopped.*,
        CASE WHEN reason IN ('cancelled', 'abandoned') THEN 'cancelled' ELSE 'failed' END AS status, CASE reason
        WHEN 'step_in_doubt' THEN format('step "%s" started and its end is unknown: it may have taken effect', open_step)
        WHEN 'task_expired' THEN 'the task expired before its work was done: ttlMs ran out'
        WHEN 'work_limit' THEN format('the work was stopped after its limit of %s ms', work_ms_max)
        WHEN 'input_deadline' THEN coalesce(stop_detail, 'a question went unanswered')
        WHEN 'version_gone' THEN format('no worker serves version %s of this tool any more', tool_version)
        WHEN 'worker_lost' THEN 'the worker was lost, and this tool is not tried again'
        WHEN 'attempts_exhausted' THEN format('gave up after %s tries: %s', tries + 1, coalesce(last_error, 'the worker was lost'))
        ELSE 'cancelled' END AS message
    FROM stopped
), archived AS (
    -- The attempt that ran the tool; the one that undoes comes after it.
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how, reason)
    SELECT id, attempt, claimed_by, false, claimed_at, coalesce(lost_at, now()),
        CASE WHEN lost_at IS NULL THEN 'stopped' ELSE 'lost' END, reason
    FROM said WHERE has_undo AND phase = 'running'
    ON CONFLICT DO NOTHING
)
UPDATE tasks t SET
    -- As it is under the lock, and so no change. The table's constraints are checked first with the
    -- row as of the statement's start, where a step may be open that has ended since.
    open_step = said.open_step,
    status = CASE WHEN said.has_undo THEN 'working' ELSE said.status END,
    phase = CASE WHEN said.has_undo THEN 'undoing' END,
    pending_status = CASE WHEN said.has_undo THEN said.status END,
    status_message = CASE WHEN said.has_undo THEN 'undoing finished steps: ' ELSE '' END || said.message,
    error = CASE WHEN said.status = 'failed' THEN convert_to(jsonb_build_object(
        'code', -32603, 'message', said.message,
        'data', jsonb_strip_nulls(jsonb_build_object('reason', said.reason, 'step', said.open_step)))::text, 'UTF8') END,
    tries = t.tries + CASE WHEN said.reason IN ('attempts_exhausted', 'worker_lost') THEN 1 ELSE 0 END,
    lease_until = NULL, run_at = now(), hinted_at = NULL, hint_count = 0,
    input_requests = NULL, input_deadline_at = NULL, parked_for = NULL,
    finished_at = CASE WHEN said.has_undo THEN NULL ELSE now() END,
    expires_at = CASE WHEN said.reason = 'task_expired' OR t.expires_at <= now()
        THEN greatest(t.expires_at, date_trunc('milliseconds', now()) + $6::bigint * interval '1 millisecond')
        ELSE t.expires_at END,
    last_updated_at = greatest(date_trunc('milliseconds', now()), t.last_updated_at + interval '1 millisecond')
FROM said WHERE t.id = said.id
RETURNING t.id, said.reason, said.has_undo AS undoing, t.tool, t.tool_version, said.phase AS was, said.stop_reason AS stop,
    (extract(epoch FROM now() - t.created_at) * 1000)::bigint AS age_ms

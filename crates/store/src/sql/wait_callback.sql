-- I10. The job ends because the task waits for a service: lease, slot and owner go. To everybody else
-- it is a job that is due when the callback's time is over, so that nothing but the usual look at due
-- jobs is needed to end the wait. Nobody's turn comes to it before (`asleep`). What the service does meanwhile is an open step ($5) unless an undo
-- ends it or it does no harm: a task that is stopped then says that it may take effect. The TTL grows
-- by the wait, up to the tool's cap. What was said since the address was made stands. Refused when a stop is requested. Runs under the lock of
-- lock_running.sql.
WITH before AS (
    SELECT t.claimed_at, c.opened_at, c.waiting_since IS NULL AS first, c.expires_at AS due
    FROM tasks t JOIN callbacks c ON c.task_id = t.id AND c.key = $4
    WHERE t.id = $1 AND t.attempt = $2 AND t.claim_token = $3
), t AS (
    UPDATE tasks SET
        phase = 'queued', lease_until = NULL, claimed_at = NULL, journaled = true,
        run_at = before.due, asleep = true, hinted_at = NULL, hint_count = 0,
        open_step = CASE WHEN $5 THEN $4 END,
        expires_at = CASE WHEN NOT before.first THEN expires_at WHEN expires_at IS NOT NULL
            THEN greatest(expires_at, least(expires_at + (before.due - now()),
                created_at + coalesce(ttl_ms_max, 9000000000000) * interval '1 millisecond')) END,
        work_ms_used = work_ms_used + $6,
        status_message = CASE WHEN last_updated_at > before.opened_at THEN status_message ELSE coalesce($7, status_message) END,
        last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
    FROM before
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
      AND stop_requested_at IS NULL AND (open_step IS NULL OR open_step = $4)
      AND (expires_at IS NULL OR expires_at > now())
    RETURNING id, attempt, claimed_by
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how)
    SELECT t.id, t.attempt, t.claimed_by, false, before.claimed_at, now(), 'parked' FROM t, before
    ON CONFLICT DO NOTHING
), w AS (
    UPDATE callbacks SET waiting_since = coalesce(waiting_since, now())
    FROM t WHERE callbacks.task_id = t.id AND callbacks.key = $4
)
SELECT id FROM t

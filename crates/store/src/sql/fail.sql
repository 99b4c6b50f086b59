-- I3, I6. A JSON-RPC error instead of a result, once. Fenced. What finished steps did is undone
-- first: the task then goes on as `undoing`, and the error waits. No row: repeated.sql tells a
-- repeat from a loss.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH f AS (
    UPDATE tasks SET
        status = CASE WHEN has_undo THEN 'working' ELSE 'failed' END,
        phase = CASE WHEN has_undo THEN 'undoing' END,
        pending_status = CASE WHEN has_undo THEN 'failed' END,
        error = $4, status_message = CASE WHEN has_undo THEN 'undoing finished steps: ' ELSE '' END || $5,
        finished_at = CASE WHEN has_undo THEN NULL ELSE now() END,
        lease_until = NULL, run_at = now(), hinted_at = NULL, hint_count = 0, work_ms_used = work_ms_used + $6,
        last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
    WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'
    RETURNING id, attempt, claimed_by, claimed_at, phase, (extract(epoch FROM now() - created_at) * 1000)::bigint AS age_ms
), archived AS (
    INSERT INTO attempts (task_id, attempt, worker, undoing, claimed_at, ended_at, how)
    SELECT id, attempt, claimed_by, false, claimed_at, now(), 'failed' FROM f WHERE phase = 'undoing'
    ON CONFLICT DO NOTHING
)
SELECT phase, age_ms FROM f

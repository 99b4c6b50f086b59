-- What is not so any more: the failure was read, the question answered, the work over. An alert that
-- nobody cared for within its time ($2 ms) ends as well. Receivers that were told are told of it.
WITH over AS MATERIALIZED (
    SELECT a.id FROM alerts a LEFT JOIN tasks t ON t.id = a.task_id
    WHERE a.resolved_at IS NULL AND (a.raised_at < now() - $2::bigint * interval '1 millisecond' OR CASE
        WHEN a.kind = 'unfetched_failure' THEN t.first_fetched_at IS NOT NULL
        -- Whoever read it may not be who can look at the outside world.
        WHEN a.kind = 'step_in_doubt' THEN t.first_fetched_at IS NOT NULL AND a.raised_at < now() - interval '1 hour'
        WHEN t.id IS NULL OR t.phase IS NULL THEN true
        WHEN a.kind IN ('question_asked', 'question_waiting') THEN t.phase <> 'parked' OR t.rounds <> a.round
        WHEN a.kind = 'over_work_limit' THEN t.phase <> 'running'
        ELSE false END)
    ORDER BY a.raised_at LIMIT $1
    FOR NO KEY UPDATE OF a SKIP LOCKED
), told AS MATERIALIZED (
    SELECT d.alert_id, d.receiver FROM alert_deliveries d JOIN over ON d.alert_id = over.id
    WHERE d.state = 'firing' ORDER BY d.alert_id, d.receiver FOR NO KEY UPDATE OF d
), d AS (
    UPDATE alert_deliveries d SET
        -- One that was tried may have arrived.
        state = CASE WHEN d.delivered_at IS NOT NULL OR d.tries > 0 THEN 'resolving' ELSE 'given_up' END,
        next_at = CASE WHEN d.delivered_at IS NOT NULL OR d.tries > 0 THEN now() END, tries = 0
    FROM told WHERE d.alert_id = told.alert_id AND d.receiver = told.receiver AND d.state = 'firing'
)
UPDATE alerts SET resolved_at = now() FROM over WHERE alerts.id = over.id

-- What a receiver is to be sent now, claimed for $3 ms: a sender that is killed leaves it to the next one, so a
-- crash leads to a repeat and never to a loss.
WITH due AS MATERIALIZED (
    SELECT alert_id, receiver FROM alert_deliveries
    WHERE next_at <= now() AND receiver = $2
    ORDER BY next_at LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
    UPDATE alert_deliveries d SET next_at = now() + $3::bigint * interval '1 millisecond', tries = d.tries + 1
    FROM due WHERE d.alert_id = due.alert_id AND d.receiver = due.receiver
    RETURNING d.alert_id, d.receiver, d.state, d.tries
)
SELECT claimed.receiver, claimed.state, claimed.tries, a.id, a.fingerprint, a.kind, a.task_id, a.issuer, a.subject, a.tool,
       a.reason, a.task_created_at, a.since, a.raised_at, a.resolved_at, now() AS now,
       (SELECT t.trace_context FROM tasks t WHERE t.id = a.task_id) AS trace_context
FROM claimed JOIN alerts a ON a.id = claimed.alert_id

-- The receipts of messages ($1 alerts, $2 receivers, $3 states as sent). A firing one may be sent again
-- ($4 ms; NULL = never), and so is that it is over, for $5 ms from then on. What has changed since it
-- was sent keeps its turn. Rows are locked in the order of resolve_alerts.sql.
WITH v AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS v(alert_id, receiver, sent)
), mine AS MATERIALIZED (
    SELECT d.alert_id, d.receiver, v.sent,
        v.sent = 'resolving' AND ($4::bigint IS NULL OR $5::bigint IS NULL
            OR a.resolved_at <= now() - $5::bigint * interval '1 millisecond') AS last
    FROM alert_deliveries d JOIN v ON d.alert_id = v.alert_id AND d.receiver = v.receiver
    JOIN alerts a ON a.id = d.alert_id
    ORDER BY d.alert_id, d.receiver FOR NO KEY UPDATE OF d
)
UPDATE alert_deliveries d SET
    delivered_at = CASE WHEN mine.sent = 'firing' THEN coalesce(d.delivered_at, now()) ELSE d.delivered_at END,
    resolved_at = CASE WHEN mine.sent = 'resolving' THEN coalesce(d.resolved_at, now()) END,
    state = CASE WHEN d.state = 'resolving' AND mine.last THEN 'done' ELSE d.state END,
    next_at = CASE WHEN d.state <> mine.sent THEN d.next_at
                   WHEN mine.last THEN NULL
                   ELSE now() + $4::bigint * interval '1 millisecond' END,
    tries = 0, last_error = NULL
FROM mine WHERE d.alert_id = mine.alert_id AND d.receiver = mine.receiver

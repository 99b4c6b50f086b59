-- Alerts that are over for $2 ms, with their receipts.
WITH gone AS MATERIALIZED (
    SELECT id FROM alerts WHERE resolved_at < now() - $2::bigint * interval '1 millisecond'
    LIMIT $1 FOR UPDATE SKIP LOCKED
), d AS (DELETE FROM alert_deliveries USING gone WHERE alert_id = gone.id)
DELETE FROM alerts USING gone WHERE alerts.id = gone.id

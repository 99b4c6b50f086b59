-- The only caller went away before it got a handle, and no key lets it come back: told to stop.
-- A task that has asked its caller (rounds > 0) may have another one: whoever has the
-- requestState. Its hold is cut short instead, which a gateway with a caller waiting renews; not
-- while it asks, because whoever was asked has the whole of the state's time, and nobody waits.
-- Rows are locked in id order.
WITH mine AS MATERIALIZED (
    SELECT t.id, t.rounds, t.phase FROM tasks t
    WHERE t.id = ANY($1::uuid[]) AND coalesce(t.phase, '') <> '' AND t.stop_requested_at IS NULL
      AND t.handed_out_at IS NULL AND t.idempotency_key IS NULL
    ORDER BY t.id FOR NO KEY UPDATE
), shared AS (
    UPDATE tasks t SET held_until = now() + $2::bigint * interval '1 millisecond'
    FROM mine m WHERE t.id = m.id AND m.rounds > 0 AND m.phase <> 'parked'
)
UPDATE tasks t SET stop_requested_at = now(), stop_reason = 'abandoned'
FROM mine m WHERE t.id = m.id AND m.rounds = 0
RETURNING t.id

-- The only caller went away before it got a handle, and no key lets it come back: told to stop.
-- A task that has asked its caller (rounds > 0) may have another one: whoever has the
-- requestState. Its hold is cut short instead, which a gateway with a caller waiting renews; not
-- while it asks, because whoever was asked has the whole of the state's time, and nobody waits.
WITH shared AS (
    UPDATE tasks SET held_until = now() + $2::bigint * interval '1 millisecond'
    WHERE id = ANY($1::uuid[]) AND coalesce(phase, '') <> '' AND stop_requested_at IS NULL
      AND handed_out_at IS NULL AND idempotency_key IS NULL AND rounds > 0 AND coalesce(phase, '') <> 'parked'
)
UPDATE tasks SET stop_requested_at = now(), stop_reason = 'abandoned'
WHERE id = ANY($1::uuid[]) AND coalesce(phase, '') <> '' AND stop_requested_at IS NULL
  AND handed_out_at IS NULL AND idempotency_key IS NULL AND rounds = 0
RETURNING id

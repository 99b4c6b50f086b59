-- The only caller went away before it got a handle, and no key lets it come back.
UPDATE tasks SET stop_requested_at = now(), stop_reason = 'abandoned'
WHERE id = ANY($1::uuid[]) AND phase IS NOT NULL AND stop_requested_at IS NULL
  AND handed_out_at IS NULL AND idempotency_key IS NULL
RETURNING id

-- What the work says of itself. HOT: touches no indexed column. Nothing moves when nothing
-- changes.
UPDATE tasks SET
    status_message = $4,
    last_updated_at = greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond')
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND phase = 'running'
  AND status_message IS DISTINCT FROM $4

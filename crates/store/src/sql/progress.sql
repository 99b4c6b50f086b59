-- What the work says of itself. HOT: touches no indexed column. Said again it is no change that
-- anyone sees, but still proof of ownership.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
UPDATE tasks SET
    status_message = $4,
    last_updated_at = CASE WHEN status_message IS NOT DISTINCT FROM $4 THEN last_updated_at
        ELSE greatest(date_trunc('milliseconds', now()), last_updated_at + interval '1 millisecond') END
WHERE id = $1 AND attempt = $2 AND claim_token = $3 AND coalesce(phase, '') = 'running'

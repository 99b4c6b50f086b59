-- A fenced write found nothing to do: because the same owner did it before, and only the reply
-- was lost, or because the owner is not the owner any more? A statement of its own, so that it
-- sees what the write waited for. Owner and token stay on the row until the next claim.
SELECT status, phase, (extract(epoch FROM coalesce(finished_at, now()) - created_at) * 1000)::bigint AS age_ms
FROM tasks WHERE id = $1 AND attempt = $2 AND claim_token = $3

-- I3. Extends the leases of all jobs of one worker in one statement; a job that does not
-- come back is lost, a stop reason tells the worker to end it. Rows are locked in id order.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
WITH mine AS MATERIALIZED (
    SELECT t.id FROM unnest((SELECT $1::uuid[]), (SELECT $2::int[]), (SELECT $3::uuid[])) AS v(id, attempt, claim_token)
    JOIN tasks t ON t.id = v.id AND t.attempt = v.attempt AND t.claim_token = v.claim_token
    -- A task that is to be undone belongs to nobody until it is claimed for that.
    WHERE coalesce(t.phase, '') IN ('running', 'undoing') AND t.lease_until IS NOT NULL
    ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE tasks t SET lease_until = now() + $4::bigint * interval '1 millisecond'
FROM mine WHERE t.id = mine.id
RETURNING t.id, t.stop_reason

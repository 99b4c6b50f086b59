-- For operators: who runs jobs. Also whoever owns a job and has not introduced itself: a worker of an
-- older release, or one that is gone.
WITH busy AS (
    SELECT claimed_by AS name, count(*) FILTER (WHERE lease_until > now()) AS running,
           count(*) FILTER (WHERE lease_until <= now()) AS lost,
           (extract(epoch FROM now() - min(claimed_at)))::bigint AS oldest_s
    FROM tasks WHERE phase IN ('running', 'undoing') AND lease_until IS NOT NULL GROUP BY claimed_by
)
SELECT coalesce(w.name, b.name) AS name, w.host, w.release, w.slots, w.tools, w.started_at, w.seen_at,
       (extract(epoch FROM now() - w.seen_at))::bigint AS seen_s,
       coalesce(w.seen_at > now() - $1::bigint * interval '1 millisecond', coalesce(b.running, 0) > 0) AS alive,
       coalesce(b.running, 0) AS running, coalesce(b.lost, 0) AS lost, b.oldest_s
FROM workers w FULL JOIN busy b ON b.name = w.name
ORDER BY w.started_at, 1

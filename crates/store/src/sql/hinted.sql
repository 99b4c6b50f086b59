-- What hints ($1) lead to, where more waits than there are places. `named`: the job is to be undone, or its lease
-- ran out, or it is due and still `asleep`; it goes first, by claim.sql. `gone`: it does not wait, or not yet; such a
-- hint is one more than there are jobs. Of all others it says in which queue somebody's turn is.
-- `coalesce`: by id, and never by an index of what is live, which is taken for small after a quiet hour.
SELECT v.n, t.queue, s.named, NOT s.named AND NOT (p.phase = 'queued' AND s.due) AS gone
FROM unnest((SELECT $1::uuid[])) WITH ORDINALITY AS v(id, n)
LEFT JOIN tasks t ON t.id = v.id
CROSS JOIN LATERAL (SELECT coalesce(t.phase, '') AS phase, coalesce(t.run_at <= now(), false) AS due,
    coalesce(t.lease_until < now(), false) AS lost) p
CROSS JOIN LATERAL (SELECT p.due, (p.phase = 'undoing' AND p.due AND (t.lease_until IS NULL OR p.lost))
    OR (p.phase = 'running' AND p.lost) OR (p.phase = 'queued' AND p.due AND t.asleep) AS named) s

-- What a worker served that ended ($1, "name version" each), and no other one serves ($2 ms without a
-- word is none): seen so long ago that another version may take its place. A worker of release 0.1.0,
-- which does not introduce itself, makes it seen again within seconds. Under the lock of lock_tools.sql.
UPDATE tools t SET last_seen_at = least(t.last_seen_at, now() - $2::bigint * interval '1 millisecond')
WHERE t.name || ' ' || t.version = ANY($1::text[])
  AND NOT EXISTS (SELECT FROM workers w WHERE t.name || ' ' || t.version = ANY(w.tools)
      AND w.seen_at > now() - $2::bigint * interval '1 millisecond')
RETURNING t.name

-- A worker ends in good order: what only it provided ($1, "name version" each) counts as seen long
-- ago ($2 ms), so that nobody waits for it. Another one makes it seen again within seconds.
UPDATE providers v SET last_seen_at = least(v.last_seen_at, now() - $2::bigint * interval '1 millisecond')
WHERE v.name || ' ' || v.version = ANY($1::text[])

-- A worker ended in good order: what it provided ($1, "provider/NAME VERSION" among others), and no
-- other one provides ($2 ms without a word is none), counts as seen long ago, so that nobody waits
-- for it. Runs in the transaction that forgets the worker.
UPDATE providers v SET last_seen_at = least(v.last_seen_at, now() - $2::bigint * interval '1 millisecond')
WHERE 'provider/' || v.name || ' ' || v.version = ANY($1::text[])
  AND NOT EXISTS (SELECT FROM workers w WHERE 'provider/' || v.name || ' ' || v.version = ANY(w.tools)
      AND w.seen_at > now() - $2::bigint * interval '1 millisecond')

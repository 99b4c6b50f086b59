-- What is provided beside tools, as gateways see it: of each provider the highest version that a
-- worker was seen serving lately ($1 ms); while none is alive, the one seen last. And whether an
-- operator paused what runs its jobs. What the asker has already ($2, digests) is not sent again.
SELECT DISTINCT ON (v.name) v.name, v.version, v.spec_digest,
       CASE WHEN v.spec_digest = ANY($2::bytea[]) THEN NULL ELSE v.spec END AS spec,
       v.last_seen_at > now() - $1::bigint * interval '1 millisecond' AS alive,
       coalesce(p.calls, false) AS paused
FROM providers v LEFT JOIN tool_pauses p ON p.tool = 'provider/' || v.name
WHERE v.listed
ORDER BY v.name, (v.last_seen_at > now() - $1::bigint * interval '1 millisecond') DESC,
         CASE WHEN v.last_seen_at > now() - $1::bigint * interval '1 millisecond' THEN v.version END DESC,
         v.last_seen_at DESC

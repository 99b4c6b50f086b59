-- For how long (ms) workers could have been heard: Postgres was up, and some worker was. NULL: none is.
SELECT (extract(epoch FROM min(heard)) * 1000)::bigint AS watched_ms FROM (
    SELECT now() - pg_postmaster_start_time() AS heard WHERE EXISTS (SELECT FROM workers WHERE seen_at > now() - $1::bigint * interval '1 millisecond')
    UNION ALL
    SELECT max(now() - started_at) FROM workers WHERE seen_at > now() - $1::bigint * interval '1 millisecond') w

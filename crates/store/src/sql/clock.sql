-- What time it is, for whatever was sealed with a time of this clock.
SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms

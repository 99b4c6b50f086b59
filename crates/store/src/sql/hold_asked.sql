-- A caller was asked before there is a task: it has this long to come back. Answers with the end of
-- that time, by the one clock that decides.
WITH held AS (
    UPDATE tasks SET held_until = greatest(held_until, now() + $2::bigint * interval '1 millisecond')
    WHERE id = $1 AND phase IS NOT NULL AND handed_out_at IS NULL
)
SELECT (extract(epoch FROM now() + $2::bigint * interval '1 millisecond') * 1000)::bigint AS until_ms

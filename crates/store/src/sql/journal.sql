-- Everything a replay needs, in the order in which it happened. `sealed`: how many of the values counted are
-- (0xff begins no JSON).
SELECT 'step' AS kind, key, seq, state = 'finished' AS done, idempotent, output AS value,
       (octet_length(key) + coalesce(octet_length(output), 0) + coalesce(octet_length(undo), 0))::bigint AS bytes,
       coalesce((substr(output, 1, 1) = '\xff')::int, 0) + coalesce((substr(undo, 1, 1) = '\xff')::int, 0) AS sealed
FROM steps WHERE task_id = $1
UNION ALL
SELECT 'input', key, seq, response IS NOT NULL, false, response,
       (octet_length(key) + octet_length(request) + coalesce(octet_length(response), 0))::bigint,
       (substr(request, 1, 1) = '\xff')::int + coalesce((substr(response, 1, 1) = '\xff')::int, 0)
FROM inputs WHERE task_id = $1
UNION ALL
SELECT 'callback', key, seq, response IS NOT NULL, false, response,
       (octet_length(key) + coalesce(octet_length(step_output), 0) + coalesce(octet_length(response), 0))::bigint,
       coalesce((substr(step_output, 1, 1) = '\xff')::int, 0) + coalesce((substr(response, 1, 1) = '\xff')::int, 0)
FROM callbacks WHERE task_id = $1
ORDER BY seq, key

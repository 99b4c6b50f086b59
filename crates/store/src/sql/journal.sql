-- Everything a replay needs, in the order in which it happened.
SELECT 'step' AS kind, key, seq, state = 'finished' AS done, idempotent, output AS value,
       (octet_length(key) + coalesce(octet_length(output), 0) + coalesce(octet_length(undo), 0))::bigint AS bytes
FROM steps WHERE task_id = $1
UNION ALL
SELECT 'input', key, seq, response IS NOT NULL, false, response,
       (octet_length(key) + octet_length(request) + coalesce(octet_length(response), 0))::bigint
FROM inputs WHERE task_id = $1
UNION ALL
SELECT 'callback', key, seq, response IS NOT NULL, false, response,
       (octet_length(key) + coalesce(octet_length(step_output), 0) + coalesce(octet_length(response), 0))::bigint
FROM callbacks WHERE task_id = $1
ORDER BY seq, key

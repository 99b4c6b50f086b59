-- Everything a replay needs, in the order in which it happened.
SELECT 'step' AS kind, key, seq, state = 'finished' AS done, idempotent, output AS value
FROM steps WHERE task_id = $1
UNION ALL
SELECT 'input', key, seq, response IS NOT NULL, false, response
FROM inputs WHERE task_id = $1
ORDER BY seq, key

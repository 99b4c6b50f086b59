-- For operators: who was asked when, and who answered; not what.
SELECT key, seq, attempt, asked_at, deadline_at, answered_at, answered_by FROM inputs WHERE task_id = $1 ORDER BY seq, asked_at

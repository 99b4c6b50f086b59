-- For operators: how earlier attempts of a task ended.
SELECT attempt, worker, undoing, claimed_at, ended_at, how, reason FROM attempts WHERE task_id = $1 ORDER BY attempt

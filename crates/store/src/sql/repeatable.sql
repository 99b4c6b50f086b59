-- Under the row's lock: whether a finished task may be repeated by a new one. `doubt`: nobody knows
-- what a step or its undo did. `acted`: finished steps that were not undone, and would act again.
SELECT t.status, t.status = 'failed' OR (t.status = 'completed' AND t.is_error) AS failed, t.tool,
       t.open_step IS NOT NULL OR EXISTS (SELECT FROM steps s WHERE s.task_id = t.id AND s.undo_state IN ('started', 'failed')) AS doubt,
       (SELECT count(*) FROM steps s WHERE s.task_id = t.id AND s.state = 'finished' AND s.undo_state IS DISTINCT FROM 'finished') AS acted
FROM tasks t WHERE t.id = $1 FOR NO KEY UPDATE OF t

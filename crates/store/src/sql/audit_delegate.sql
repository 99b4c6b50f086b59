-- Who answers for somebody else of its tenant, by the transaction that stores the answers. What was
-- answered is in `inputs`; here are only the names of the questions.
WITH act AS (
    INSERT INTO audit (id, at, operator, command, target, outcome)
    VALUES (gen_random_uuid(), now(), $2, 'tasks/update', $3, 'answered')
    RETURNING id
)
INSERT INTO audit_tasks (audit_id, task_id, outcome, at) SELECT id, $1, 'answered', now() FROM act

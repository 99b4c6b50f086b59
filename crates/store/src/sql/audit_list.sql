-- What operators did, the last first; of one operator ($1), or to one task ($2), its repeats included.
SELECT a.id, a.at, a.operator, a.command, a.target, a.outcome,
       coalesce((SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
            'task_id', x.task_id, 'outcome', x.outcome, 'new_task_id', x.new_task_id)) ORDER BY x.at, x.task_id)
        FROM audit_tasks x WHERE x.audit_id = a.id), '[]') AS tasks
FROM audit a
WHERE ($1::text IS NULL OR a.operator = $1)
  AND ($2::uuid IS NULL OR EXISTS (SELECT FROM audit_tasks x WHERE x.audit_id = a.id AND (x.task_id = $2 OR x.new_task_id = $2)))
ORDER BY a.at DESC, a.id LIMIT $3

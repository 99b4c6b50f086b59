-- What operators did longer than $2 ms ago, but for what they did to tasks that are still there.
WITH gone AS MATERIALIZED (
    SELECT a.id FROM audit a
    WHERE a.at < now() - $2::bigint * interval '1 millisecond'
      AND NOT EXISTS (SELECT FROM audit_tasks x JOIN tasks t ON t.id IN (x.task_id, x.new_task_id) WHERE x.audit_id = a.id)
    ORDER BY a.at LIMIT $1
    FOR UPDATE SKIP LOCKED
), t AS (DELETE FROM audit_tasks USING gone WHERE audit_id = gone.id)
DELETE FROM audit USING gone WHERE audit.id = gone.id

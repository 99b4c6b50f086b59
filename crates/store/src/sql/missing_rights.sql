-- Rights on our tables that this role lacks; an attempt would fail in the middle of its work. A
-- table that is not there yet, or that the role may not even name, is a matter of the schema. Roles for
-- one process each (deploy/postgres/roles.sql) lack much on purpose: of those only what all need is asked.
WITH me AS (
    SELECT EXISTS (
        SELECT FROM pg_roles
        WHERE rolname IN ('mcp_tasks_gateway', 'mcp_tasks_worker', 'mcp_tasks_cron')
          AND pg_has_role(oid, 'USAGE')) AS is_narrow
)
SELECT c.relname::text AS name, string_agg(r.what, ', ' ORDER BY r.place) AS rights
FROM pg_class c
CROSS JOIN me
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS r(what, place)
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('tasks'))
  AND c.relkind IN ('r', 'p')
  AND c.relname = ANY ($1)
  AND CASE WHEN me.is_narrow
      THEN c.relname = 'tasks' AND r.what IN ('SELECT', 'UPDATE') AND NOT has_any_column_privilege(c.oid, r.what)
      ELSE NOT has_table_privilege(c.oid, r.what) END
GROUP BY c.relname
ORDER BY c.relname

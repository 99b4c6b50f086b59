-- Rights on our tables that this role lacks; an attempt would fail in the middle of its work. A
-- table that is not there yet, or that the role may not even name, is a matter of the schema.
SELECT c.relname::text AS name, string_agg(r.what, ', ' ORDER BY r.place) AS rights
FROM pg_class c
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS r(what, place)
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('tasks'))
  AND c.relkind IN ('r', 'p')
  AND c.relname = ANY ($1)
  AND NOT has_table_privilege(c.oid, r.what)
GROUP BY c.relname
ORDER BY c.relname

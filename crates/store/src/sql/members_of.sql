-- For operators: principals with tasks of a tenant, with what is left of some, or who answered for others of it
-- (by the audit trail's `ISSUER SUBJECT`); and whether they have others as well, which are not that tenant's. A
-- tenant is its issuer's. A tombstone without one may be of any (releases before 0013 wrote none), so who has such
-- a one is called elsewhere: named, and not erased for this tenant. Reads whole tables: seldom asked.
WITH members AS (
    SELECT subject FROM tasks WHERE issuer = $1 AND tenant = $2
    UNION
    SELECT subject FROM tombstones WHERE issuer = $1 AND tenant = $2
    UNION
    SELECT substr(operator, length($1::text) + 2) FROM audit
    WHERE command = 'tasks/update' AND starts_with(operator, $1::text || ' ') AND target->>'tenant' = $2
)
SELECT subject,
       EXISTS (SELECT FROM tasks t
               WHERE hashtextextended(t.issuer || ' ' || t.subject, 0) = hashtextextended($1::text || ' ' || m.subject, 0)
                 AND t.issuer = $1 AND t.subject = m.subject AND t.tenant IS DISTINCT FROM $2)
       OR EXISTS (SELECT FROM tombstones t
                  WHERE t.issuer = $1 AND t.subject = m.subject AND t.tenant IS DISTINCT FROM $2)
       OR EXISTS (SELECT FROM audit a
                  WHERE a.operator = $1::text || ' ' || m.subject AND a.command = 'tasks/update'
                    AND a.target->>'tenant' IS DISTINCT FROM $2) AS elsewhere
FROM members m ORDER BY subject

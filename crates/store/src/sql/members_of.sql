-- For operators: principals with tasks of a tenant, or with what is left of some; and whether they have others
-- as well, which are not that tenant's. A tenant is its issuer's. Reads whole tables: seldom asked.
WITH members AS (
    SELECT subject FROM tasks WHERE issuer = $1 AND tenant = $2
    UNION
    SELECT subject FROM tombstones WHERE issuer = $1 AND tenant = $2
)
SELECT subject,
       EXISTS (SELECT FROM tasks t
               WHERE hashtextextended(t.issuer || ' ' || t.subject, 0) = hashtextextended($1::text || ' ' || m.subject, 0)
                 AND t.issuer = $1 AND t.subject = m.subject AND t.tenant IS DISTINCT FROM $2)
       OR EXISTS (SELECT FROM tombstones t
                  WHERE t.issuer = $1 AND t.subject = m.subject AND t.tenant <> $2) AS elsewhere
FROM members m ORDER BY subject

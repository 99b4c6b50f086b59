-- For operators: whether a principal ($3) has what is not this tenant's by now. What members_of asked of all at
-- once is old when the turn of the last one comes, so each is asked for again before anything of it is deleted.
SELECT EXISTS (SELECT FROM tasks
               WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $3::text, 0)
                 AND issuer = $1 AND subject = $3 AND tenant IS DISTINCT FROM $2::text)
       OR EXISTS (SELECT FROM tombstones
                  WHERE issuer = $1 AND subject = $3 AND tenant IS DISTINCT FROM $2::text)
       OR EXISTS (SELECT FROM audit
                  WHERE operator = $1::text || ' ' || $3::text AND command = 'tasks/update'
                    AND target->>'tenant' IS DISTINCT FROM $2::text) AS elsewhere

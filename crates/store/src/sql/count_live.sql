-- Quotas. Live tasks of one principal and of its tenant, each counted up to a bound, by indexes that hold
-- the live ones only. A tenant is its issuer's: another issuer's of the same name is another.
SELECT (SELECT count(*) FROM (
            SELECT FROM tasks
            WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
              AND issuer = $1 AND subject = $2 AND phase IS NOT NULL
            LIMIT $4::bigint) own) AS of_principal,
       (SELECT count(*) FROM (
            SELECT FROM tasks
            WHERE hashtextextended(issuer || ' ' || tenant, 0) = hashtextextended($1::text || ' ' || $3::text, 0)
              AND issuer = $1 AND tenant = $3 AND phase IS NOT NULL AND tenant IS NOT NULL
            LIMIT $5::bigint) ours) AS of_tenant

-- For operators: what there is of a principal ($3: as the audit trail names it), before it is erased.
SELECT
    (SELECT count(*) FROM tasks WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
        AND issuer = $1 AND subject = $2 AND phase IS NULL) AS ended,
    (SELECT count(*) FROM tasks WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
        AND issuer = $1 AND subject = $2 AND phase IS NOT NULL) AS live,
    (SELECT count(*) FROM tombstones WHERE issuer = $1 AND subject = $2) AS tombstones,
    (SELECT count(*) FROM idempotency_keys WHERE issuer = $1 AND subject = $2) AS keys,
    (SELECT count(*) FROM alerts WHERE issuer = $1 AND subject = $2) AS alerts,
    (SELECT count(*) FROM audit WHERE operator = $3
        OR (target #>> '{filter,principal}' = $2 AND coalesce(target #>> '{filter,issuer}', $1) = $1)) AS audits

-- I8, I13. What is left of ids that get.sql found no task of, for their owners only.
SELECT v.n, y.final_status, y.expired_at
FROM (SELECT $1::uuid[] AS ids, $2::text[] AS issuers, $3::text[] AS subjects OFFSET 0) q
CROSS JOIN unnest(q.ids, q.issuers, q.subjects) WITH ORDINALITY AS v(id, issuer, subject, n)
JOIN tombstones y ON y.task_id = v.id AND y.issuer = v.issuer AND y.subject = v.subject

-- Live tasks of a principal; first those that nobody told to stop.
SELECT id, stop_requested_at IS NOT NULL OR phase = 'undoing' AS stopping FROM tasks
WHERE hashtextextended(issuer || ' ' || subject, 0) = hashtextextended($1::text || ' ' || $2::text, 0)
  AND issuer = $1 AND subject = $2 AND phase IS NOT NULL
ORDER BY stopping, id LIMIT $3

-- Second half of the election, in a statement of its own: the unique index on the current
-- version is checked row by row.
UPDATE tools SET current = true, changed_at = now()
FROM unnest($1::text[], $2::int[]) AS v(name, version)
WHERE tools.name = v.name AND tools.version = v.version AND NOT tools.current

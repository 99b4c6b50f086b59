-- One migrator at a time; the others ask again.
SELECT pg_try_advisory_lock($1)

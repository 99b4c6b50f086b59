-- Workers that start together take turns, or two elections would each see half.
SELECT pg_advisory_xact_lock(hashtextextended('mcp-tasks tools', 0))

-- I14. What a starting binary must know.
SELECT coalesce(max(version), 0) AS version,
       (SELECT oldest_supported_release FROM schema_support) AS oldest
FROM schema_migrations

-- What was applied, with the checksum of the text that was.
SELECT version, checksum FROM schema_migrations ORDER BY version

-- Whether any migration ever ran here.
SELECT to_regclass('schema_migrations') IS NOT NULL AND to_regclass('schema_support') IS NOT NULL

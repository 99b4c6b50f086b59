-- Which migrations were applied, and which releases the schema still supports.
CREATE TABLE IF NOT EXISTS schema_migrations (
    version     integer     NOT NULL PRIMARY KEY,
    name        text        NOT NULL,
    checksum    bytea       NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS schema_support (
    one                       boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    oldest_supported_release  text    NOT NULL
);

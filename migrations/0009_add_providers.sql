-- 0009: what workers provide beside tools, which of it changed, and who wants to know.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema and knows nothing of it: its gateways serve no resources and no
-- prompts, and the jobs behind them are of tools that its workers do not have.

-- Resources, prompts and completions are listed, registered and asked by provider.
CREATE TABLE providers (
    name           text        NOT NULL,
    version        integer     NOT NULL,
    listed         boolean     NOT NULL,
    spec           bytea       NOT NULL,
    spec_digest    bytea       NOT NULL,
    changed_at     timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    PRIMARY KEY (name, version)
) WITH (
    -- A handful of rows that every worker touches every few seconds.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1
);

-- When a resource last changed, as its provider told. By SHA-256 of the URI, which may be longer
-- than an index takes.
CREATE TABLE resource_updates (
    uri_digest  bytea       NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (uri_digest)
) WITH (fillfactor = 70);

-- Resources that somebody listens to on some gateway, so that providers know what to watch. Renewed
-- while it is so.
CREATE TABLE wanted_resources (
    uri_digest  bytea       NOT NULL,
    uri         text        NOT NULL,
    provider    text        NOT NULL,
    until       timestamptz NOT NULL,
    PRIMARY KEY (uri_digest)
) WITH (fillfactor = 70);

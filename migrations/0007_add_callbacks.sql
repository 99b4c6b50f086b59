-- 0007: results that services send later.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema: it opens no callbacks, and what it deletes takes them along. A
-- task that waits for one is to it a job that is not due yet.

-- This queued task is not due for long, because it waits for a service or backs off: nobody's turn comes to
-- it (0008). Changes with `phase` or `run_at`, and once when it is due.
ALTER TABLE tasks ADD COLUMN asleep boolean NOT NULL DEFAULT false;

-- An address at which a task's result may arrive once: what `key` names in the task's journal, whose
-- numbering it shares. The address itself is not kept: it follows from these columns and a key of the
-- settings.
CREATE TABLE callbacks (
    task_id            uuid        NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key                text        NOT NULL,
    seq                integer     NOT NULL,
    attempt            integer     NOT NULL,
    -- Fingerprint of the key that signs: a repeated request carries the same address, also after keys
    -- were rotated.
    signed_by          text        NOT NULL,
    opened_at          timestamptz NOT NULL,
    expires_at         timestamptz NOT NULL,
    -- The step that has happened if somebody calls this address, and the output it then has.
    step               text,
    step_output        bytea,
    -- Since when the task waits for it without a worker.
    waiting_since      timestamptz,
    response           bytea,
    response_encoding  smallint    NOT NULL DEFAULT 0,
    -- SHA-256 of the body: the same again is a repeat, another one is refused.
    response_digest    bytea,
    received_at        timestamptz,
    PRIMARY KEY (task_id, key),
    CONSTRAINT callbacks_received_has_response CHECK ((received_at IS NULL) = (response IS NULL)),
    CONSTRAINT callbacks_response_has_digest CHECK ((response IS NULL) = (response_digest IS NULL)),
    CONSTRAINT callbacks_step_has_output CHECK ((step IS NULL) = (step_output IS NULL))
) WITH (
    -- Written three times: opened, waited for, received.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05
);

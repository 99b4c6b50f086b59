-- 0004: alerts for what nobody looked at, and a receipt for each receiver.
-- oldest-supported-release: 0.1.0

ALTER TABLE tasks
    -- The result says isError: to its reader a failure, though the task is `completed`.
    ADD COLUMN is_error       boolean NOT NULL DEFAULT false,
    -- After this its unread failure is told; NULL = the setting of cron.
    ADD COLUMN alert_after_ms bigint;

-- Failures that nobody has judged yet whether to tell of. `first_fetched_at` is not in it: most
-- rows are fetched, and that update would leave the HOT path.
CREATE INDEX tasks_unalerted ON tasks (finished_at)
    WHERE phase IS NULL AND alerted_at IS NULL AND (status = 'failed' OR is_error);

CREATE TABLE alerts (
    id               uuid        NOT NULL,
    -- The same for the same fact, so that a receiver can tell a repeat.
    fingerprint      text        NOT NULL,
    kind             text        NOT NULL,
    task_id          uuid        NOT NULL,
    -- Of a question: the round in which it was asked.
    round            integer     NOT NULL DEFAULT 0,
    issuer           text        NOT NULL,
    subject          text        NOT NULL,
    tool             text        NOT NULL,
    reason           text        NOT NULL,
    task_created_at  timestamptz NOT NULL,
    -- Since when it is so.
    since            timestamptz NOT NULL,
    raised_at        timestamptz NOT NULL,
    resolved_at      timestamptz,
    PRIMARY KEY (id),
    CONSTRAINT alerts_kind_known CHECK (kind IN ('unfetched_failure', 'step_in_doubt', 'question_asked',
        'question_waiting', 'over_work_limit', 'attempts_near_max'))
);
CREATE UNIQUE INDEX alerts_fingerprint ON alerts (fingerprint);
CREATE INDEX alerts_firing ON alerts (raised_at) WHERE resolved_at IS NULL;

CREATE TABLE alert_deliveries (
    alert_id      uuid        NOT NULL,
    -- Name of the receiver in the settings.
    receiver      text        NOT NULL,
    state         text        NOT NULL DEFAULT 'firing',
    -- When to send next; NULL = nothing to send now.
    next_at       timestamptz,
    tries         integer     NOT NULL DEFAULT 0,
    delivered_at  timestamptz,
    resolved_at   timestamptz,
    last_error    text,
    PRIMARY KEY (alert_id, receiver),
    CONSTRAINT alert_deliveries_state_known CHECK (state IN ('firing', 'resolving', 'done', 'given_up'))
) WITH (fillfactor = 80);
CREATE INDEX alert_deliveries_due ON alert_deliveries (next_at) WHERE next_at IS NOT NULL;

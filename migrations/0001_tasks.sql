-- 0001: tasks, their journal, their questions, idempotency keys, tools, tombstones.
-- oldest-supported-release: 0.1.0
--
-- Rules every migration keeps are in migrations/README.md. Two that shape this one:
--   * payloads are bytea, not jsonb: a result is returned byte for byte (I6), and reading
--     a task never parses and prints JSON. `*_encoding` says how the bytes are kept:
--     0 = plain UTF-8 JSON; other numbers name a key once encryption at rest exists.
--   * columns that heartbeats and progress write (lease_until, status_message,
--     last_updated_at, held_until, hinted_at, …) stand in no index and in no index
--     predicate, because either would make those updates leave the HOT path.

CREATE TABLE tasks (
    id                   uuid        NOT NULL,

    -- Owner: exactly one principal (I8). Tenant is informative and never widens access.
    issuer               text        NOT NULL,
    subject              text        NOT NULL,
    tenant               text,

    -- What to run. `tool_version` is the current version when the task was made, or the
    -- version of the last claim; once `journaled`, it is pinned.
    tool                 text        NOT NULL,
    tool_version         integer     NOT NULL,
    journaled            boolean     NOT NULL DEFAULT false,
    queue                text        NOT NULL DEFAULT 'default',
    priority             smallint    NOT NULL DEFAULT 0,
    arguments            bytea       NOT NULL,
    arguments_encoding   smallint    NOT NULL DEFAULT 0,
    arguments_digest     bytea       NOT NULL,
    -- The creating call's client capabilities (JSON): which questions may be asked.
    client_capabilities  bytea       NOT NULL,
    -- Answers that came with the first call, before any question was asked (JSON object).
    offered_responses    bytea,
    idempotency_key      text,
    -- W3C trace context of the creating call (traceparent, tracestate, baggage), JSON.
    trace_context        bytea,

    -- What a client sees.
    status               text        NOT NULL DEFAULT 'working',
    status_message       text,
    created_at           timestamptz NOT NULL,
    last_updated_at      timestamptz NOT NULL,
    -- NULL = unlimited. ttlMs on the wire is expires_at - created_at; it never shrinks.
    expires_at           timestamptz,
    ttl_ms_max           bigint,
    -- All outstanding requests as one JSON object, kept up to date by park and answer so
    -- that a read needs this row only.
    input_requests       bytea,
    input_requests_encoding smallint NOT NULL DEFAULT 0,
    result               bytea,
    error                bytea,
    outcome_encoding     smallint    NOT NULL DEFAULT 0,
    finished_at          timestamptz,
    first_fetched_at     timestamptz,
    alerted_at           timestamptz,

    -- How it runs.
    phase                text,
    run_at               timestamptz NOT NULL,
    attempt              integer     NOT NULL DEFAULT 0,
    claim_token          uuid,
    claimed_by           text,
    lease_until          timestamptz,
    started_at           timestamptz,
    tries                integer     NOT NULL DEFAULT 0,
    tries_max            integer     NOT NULL,
    last_error           text,
    work_ms_max          bigint      NOT NULL,
    work_ms_used         bigint      NOT NULL DEFAULT 0,
    -- The one step that has started and not finished: while it is set, `cancelled` may not
    -- be written, because the act may still land (I5).
    open_step            text,
    -- Some finished step declared an undo: every end but `completed` goes through `undoing`.
    has_undo             boolean     NOT NULL DEFAULT false,
    pending_status       text,
    stop_requested_at    timestamptz,
    stop_reason          text,
    stop_detail          text,
    -- For whom a parked task asks: `caller` (before the task is shown) or `task`.
    parked_for           text,
    input_deadline_at    timestamptz,
    rounds               integer     NOT NULL DEFAULT 0,

    -- Who waits for it.
    held_until           timestamptz NOT NULL,
    handed_out_at        timestamptz,

    -- Which hint Redis was given, and when; epochs are random, one per shard and lifetime
    -- of Redis' data.
    hinted_at            timestamptz,
    hint_epoch           text,
    hint_count           smallint    NOT NULL DEFAULT 0,

    PRIMARY KEY (id),
    CONSTRAINT tasks_status_known CHECK (status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    CONSTRAINT tasks_phase_known CHECK (phase IN ('queued', 'running', 'parked', 'undoing')),
    CONSTRAINT tasks_stop_reason_known CHECK (stop_reason IN ('cancelled', 'abandoned', 'expired', 'work_limit', 'input_deadline', 'version_gone')),
    -- Let the database refuse: a row that breaks one of these is a bug, whoever wrote it.
    CONSTRAINT tasks_terminal_has_no_phase CHECK ((status IN ('completed', 'failed', 'cancelled')) = (phase IS NULL)),
    CONSTRAINT tasks_terminal_is_finished CHECK ((phase IS NULL) = (finished_at IS NOT NULL)),
    CONSTRAINT tasks_completed_has_result CHECK ((status = 'completed') = (result IS NOT NULL)),
    CONSTRAINT tasks_failed_has_error CHECK (status <> 'failed' OR error IS NOT NULL),
    CONSTRAINT tasks_input_required_is_parked CHECK ((status = 'input_required') = (phase IS NOT DISTINCT FROM 'parked')),
    CONSTRAINT tasks_parked_has_requests CHECK ((phase IS NOT DISTINCT FROM 'parked') = (input_requests IS NOT NULL)),
    CONSTRAINT tasks_owned_has_lease CHECK (phase IS DISTINCT FROM 'running' OR (lease_until IS NOT NULL AND claim_token IS NOT NULL)),
    CONSTRAINT tasks_cancelled_has_no_open_step CHECK (status <> 'cancelled' OR open_step IS NULL),
    CONSTRAINT tasks_completed_has_no_open_step CHECK (status <> 'completed' OR open_step IS NULL),
    CONSTRAINT tasks_stop_has_reason CHECK ((stop_requested_at IS NULL) = (stop_reason IS NULL)),
    CONSTRAINT tasks_parked_for_known CHECK (parked_for IN ('caller', 'task')),
    CONSTRAINT tasks_attempt_not_negative CHECK (attempt >= 0 AND tries >= 0 AND tries_max >= 1)
) WITH (
    -- A task is updated about five times in its life (claim, heartbeats, progress, end).
    -- Room in the page keeps those updates HOT: no index entry, dead rows pruned in place.
    fillfactor = 70,
    -- Finished and purged rows are the table's normal garbage: collect it at 2 % and not at
    -- the default 20 %, or a table of millions is bloated before the first run.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);

-- Sweeps look at live tasks only; phase changes are rare next to heartbeats.
CREATE INDEX tasks_live ON tasks (phase, id) WHERE phase IS NOT NULL;
-- Questions whose deadline passed. Parking and resuming move `phase` and so leave HOT anyway.
CREATE INDEX tasks_deadlines ON tasks (input_deadline_at) WHERE phase = 'parked';
-- Expiry of live and finished tasks alike. Written at insert, at park and at expiry only.
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE steps (
    task_id          uuid        NOT NULL,
    key              text        NOT NULL,
    -- Position in the journal; questions and steps share one numbering, so that a replay
    -- that asks for something else than last time is noticed.
    seq              integer     NOT NULL,
    attempt          integer     NOT NULL,
    claim_token      uuid        NOT NULL,
    state            text        NOT NULL,
    idempotent       boolean     NOT NULL,
    output           bytea,
    output_encoding  smallint    NOT NULL DEFAULT 0,
    -- How to undo the step (JSON), and how far that is.
    undo             bytea,
    undo_state       text,
    started_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    PRIMARY KEY (task_id, key),
    CONSTRAINT steps_state_known CHECK (state IN ('started', 'finished')),
    CONSTRAINT steps_finished_has_output CHECK ((state = 'finished') = (output IS NOT NULL AND finished_at IS NOT NULL)),
    CONSTRAINT steps_undo_state_known CHECK (undo_state IN ('pending', 'started', 'finished', 'failed'))
) WITH (
    -- Two writes a step (begin, finish), the second with the output.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05
);

CREATE TABLE inputs (
    task_id            uuid        NOT NULL,
    -- Never used twice in a task's life (SEP-2663): the primary key refuses it.
    key                text        NOT NULL,
    seq                integer     NOT NULL,
    attempt            integer     NOT NULL,
    request            bytea       NOT NULL,
    request_encoding   smallint    NOT NULL DEFAULT 0,
    default_response   bytea,
    response           bytea,
    response_encoding  smallint    NOT NULL DEFAULT 0,
    asked_at           timestamptz NOT NULL,
    deadline_at        timestamptz NOT NULL,
    answered_at        timestamptz,
    -- Who answered: the owner, a delegate, or nobody (the default at the deadline).
    answered_by        text,
    PRIMARY KEY (task_id, key),
    CONSTRAINT inputs_answered_has_response CHECK ((response IS NULL) = (answered_at IS NULL))
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05
);

-- Written first in the creating statement, so that two racing calls meet here and `tasks`
-- needs no unique constraint but its id (I7). Lives exactly as long as the task row.
CREATE TABLE idempotency_keys (
    issuer            text        NOT NULL,
    subject           text        NOT NULL,
    tool              text        NOT NULL,
    key               text        NOT NULL,
    task_id           uuid        NOT NULL,
    arguments_digest  bytea       NOT NULL,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (issuer, subject, tool, key)
) WITH (
    -- Insert and delete only.
    autovacuum_vacuum_scale_factor = 0.05
);

CREATE TABLE tombstones (
    task_id       uuid        NOT NULL,
    issuer        text        NOT NULL,
    subject       text        NOT NULL,
    tool          text        NOT NULL,
    final_status  text        NOT NULL,
    created_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    expired_at    timestamptz NOT NULL,
    purge_at      timestamptz NOT NULL,
    PRIMARY KEY (task_id)
);
CREATE INDEX tombstones_purge ON tombstones (purge_at);

CREATE TABLE tools (
    name           text        NOT NULL,
    version        integer     NOT NULL,
    -- At most one row a name is current: the highest version that a live worker serves.
    current        boolean     NOT NULL,
    listed         boolean     NOT NULL,
    spec           bytea       NOT NULL,
    spec_digest    bytea       NOT NULL,
    changed_at     timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    -- Decayed averages (ms): of a whole run, and of the time between visible changes.
    run_ms         double precision,
    change_ms      double precision,
    PRIMARY KEY (name, version)
) WITH (
    -- A handful of rows that every worker touches every few seconds.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1
);
CREATE UNIQUE INDEX tools_current ON tools (name) WHERE current;

-- Exactly one cron replica runs a sweep at a time. A lease, not an advisory lock: a frozen
-- process would hold a lock for ever.
CREATE TABLE sweep_leases (
    sweep             text        NOT NULL,
    holder            uuid        NOT NULL,
    lease_until       timestamptz NOT NULL,
    last_success_at   timestamptz,
    PRIMARY KEY (sweep)
) WITH (fillfactor = 50);

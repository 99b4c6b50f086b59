-- 0005: what operators do, tools that are paused, and workers that are alive.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema, but knows no pause: its gateways take calls and its workers
-- take jobs of a paused tool.

ALTER TABLE tasks
    -- The operator who asked for the stop; NULL = the owner, or time itself.
    ADD COLUMN stopped_by text;

-- A tool that takes no new calls or no new jobs. The row stays after the pause: what was hinted
-- before its end is hinted again.
CREATE TABLE tool_pauses (
    tool             text        NOT NULL,
    calls            boolean     NOT NULL DEFAULT false,
    jobs             boolean     NOT NULL DEFAULT false,
    calls_since      timestamptz,
    jobs_since       timestamptz,
    jobs_resumed_at  timestamptz,
    -- Why, in the operator's words.
    reason           text,
    changed_by       text        NOT NULL,
    PRIMARY KEY (tool)
);

-- Written by each worker beside what it publishes; a worker that is gone for a day is forgotten.
CREATE TABLE workers (
    -- As in tasks.claimed_by; a new one at every start.
    name        text        NOT NULL,
    host        text        NOT NULL,
    release     text        NOT NULL,
    slots       integer     NOT NULL,
    -- What it serves, "name version" each.
    tools       text[]      NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    PRIMARY KEY (name)
) WITH (fillfactor = 50);

-- One row for each command that changes something. Outlives the tasks.
CREATE TABLE audit (
    id        uuid        NOT NULL,
    at        timestamptz NOT NULL,
    operator  text        NOT NULL,
    -- As typed, without credentials: `tasks cancel`, `tools pause`.
    command   text        NOT NULL,
    -- What it was meant for (JSON object): the filter of a bulk, the name of a tool.
    target    jsonb       NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX audit_at ON audit (at);

-- What it did to each task, written by the transaction that did it.
CREATE TABLE audit_tasks (
    audit_id     uuid        NOT NULL,
    task_id      uuid        NOT NULL,
    outcome      text        NOT NULL,
    -- The task that repeats it.
    new_task_id  uuid,
    at           timestamptz NOT NULL,
    PRIMARY KEY (audit_id, task_id)
);
CREATE INDEX audit_tasks_task ON audit_tasks (task_id);
CREATE INDEX audit_tasks_new ON audit_tasks (new_task_id) WHERE new_task_id IS NOT NULL;

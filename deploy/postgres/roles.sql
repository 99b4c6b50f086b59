-- Roles for the three processes, each with the rights that it needs and no others. Run it with psql as the
-- owner of the tables after every `mcp-tasks migrate` (`mcp-tasks migrate --roles` does both): what a migration adds
-- is granted by the next run. Any number of runs is one. Roles that are missing are made, which takes an owner with
-- CREATEROLE; where they are there, the owner needs no right but to own tables and schema.
--
-- The roles cannot log in. Give each process a user of its own in one of them:
--     CREATE ROLE gateway LOGIN PASSWORD '…' IN ROLE mcp_tasks_gateway;
-- `mcp-tasks migrate`, and the commands for operators, are for the owner.
--
-- What this is worth: a gateway that is taken over can end no job with a result, take none, and write no
-- journal; it cannot change whose a task is, nor what it is called with. A worker can make no task, delete
-- none, and see no audit. Cron can make none.

DO $$
DECLARE
    name text;
    -- Decided when a task is made, by nobody afterwards.
    made CONSTANT text[] := ARRAY['id', 'issuer', 'subject', 'tenant', 'tool', 'arguments', 'arguments_encoding',
        'arguments_digest', 'client_capabilities', 'idempotency_key', 'created_at', 'tries_max', 'work_ms_max', 'data_key', 'sealed_by'];
    -- Who works on it, and what comes of it: the worker's alone.
    worked CONSTANT text[] := ARRAY['tool_version', 'journaled', 'result', 'is_error', 'attempt', 'claim_token',
        'claimed_by', 'claimed_at', 'started_at'];
    columns text;
BEGIN
    FOREACH name IN ARRAY ARRAY['mcp_tasks_gateway', 'mcp_tasks_worker', 'mcp_tasks_cron'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), name);
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), name);
        EXECUTE format('GRANT SELECT ON tasks, schema_migrations, schema_support, tools, providers, tool_pauses, workers, '
            'steps, inputs, attempts, callbacks, resource_updates, wanted_resources TO %I', name);
    END LOOP;

    -- Columns that each may change.
    SELECT string_agg(quote_ident(attname), ', ') INTO columns
    FROM pg_attribute WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND NOT attisdropped
        AND attname <> ALL (made || worked);
    EXECUTE format('GRANT UPDATE (%s) ON tasks TO mcp_tasks_gateway', columns);
    EXECUTE format('GRANT UPDATE (%s, attempt, claim_token, claimed_by, claimed_at, data_key, sealed_by) ON tasks TO mcp_tasks_cron', columns);
    SELECT string_agg(quote_ident(attname), ', ') INTO columns
    FROM pg_attribute WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND NOT attisdropped
        AND attname <> ALL (made);
    EXECUTE format('GRANT UPDATE (%s) ON tasks TO mcp_tasks_worker', columns);
END
$$;

-- The gateway makes tasks, stores answers, asks for stops (and ends what nobody works on), and throws away
-- what was delivered with its call.
GRANT INSERT, DELETE ON tasks TO mcp_tasks_gateway;
GRANT SELECT, INSERT, DELETE ON idempotency_keys TO mcp_tasks_gateway;
GRANT UPDATE (response, answered_at, answered_by), DELETE ON inputs TO mcp_tasks_gateway;
GRANT INSERT, DELETE ON attempts TO mcp_tasks_gateway;
GRANT UPDATE, DELETE ON steps, callbacks TO mcp_tasks_gateway;
GRANT SELECT ON tombstones TO mcp_tasks_gateway;
GRANT INSERT, UPDATE ON wanted_resources TO mcp_tasks_gateway;
-- Answers for others are written down; what stands there it cannot read.
GRANT SELECT (id), INSERT ON audit TO mcp_tasks_gateway;
GRANT INSERT ON audit_tasks TO mcp_tasks_gateway;

-- The worker works: journal, questions, attempts, and what it says of itself and its tools.
GRANT INSERT, UPDATE, DELETE ON steps, inputs, attempts, callbacks, workers TO mcp_tasks_worker;
GRANT INSERT, UPDATE ON tools, providers, resource_updates TO mcp_tasks_worker;

-- Cron ends what time has ended, deletes what is over, and tells people.
GRANT DELETE ON tasks TO mcp_tasks_cron;
GRANT SELECT, INSERT, UPDATE, DELETE ON tombstones, sweep_leases, alerts, alert_deliveries TO mcp_tasks_cron;
GRANT INSERT, UPDATE, DELETE ON attempts, steps, inputs, callbacks TO mcp_tasks_cron;
GRANT SELECT, UPDATE, DELETE ON idempotency_keys, audit, audit_tasks TO mcp_tasks_cron;
GRANT UPDATE ON tools, providers TO mcp_tasks_cron;
GRANT UPDATE, DELETE ON workers, resource_updates, wanted_resources TO mcp_tasks_cron;

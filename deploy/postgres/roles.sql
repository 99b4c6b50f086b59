-- Roles for the three processes, each with the rights that it needs and no others. Run it with psql as the
-- owner of the tables after every `mcp-tasks migrate` (`mcp-tasks migrate --roles` does both): what a migration adds
-- is granted by the next run. Any number of runs is one. Roles that are missing are made, which takes an owner with
-- CREATEROLE; where they are there, the owner needs no right but to own tables and schema.
--
-- The roles cannot log in. Give each process a user of its own in one of them:
--     CREATE ROLE gateway LOGIN PASSWORD '…' IN ROLE mcp_tasks_gateway;
-- `mcp-tasks migrate`, and the commands for operators, are for the owner.
--
-- Columns are named, so that a new one is nobody's until it is named here. A right that statements of the last
-- release need stays until the release after, because its processes run on while an upgrade is rolled out.
--
-- What this is worth. A gateway that is taken over ends no job with a result, takes none, begins no step, reads no
-- output of one and changes none, and ends only steps whose service called back; it changes neither whose a task is nor
-- what it is called with, nor is what it makes anything but a job that waits; and it reads no line of the audit. A
-- worker makes no task, deletes none, gives none to another, and sees neither audit nor keys of idempotency. Cron makes
-- none, gives no result, reads neither arguments nor results nor answers, and changes no word of the audit.
--
-- What it is not worth. All of a kind are one: whoever is a gateway reads the tasks of all principals with arguments,
-- questions, answers and results; makes tasks for any of them; answers for them, and for services that are to call
-- back; has any job stopped or failed; adds lines to the audit; and puts a new job in the place of a task that has
-- neither key nor journal. Whoever is a worker reads all of that too, works on any job, and writes any journal.
-- Whoever is cron ends and deletes any task, and lines of the audit.

DO $$
DECLARE
    name text;
    columns text;
BEGIN
    FOREACH name IN ARRAY ARRAY['mcp_tasks_gateway', 'mcp_tasks_worker', 'mcp_tasks_cron'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), name);
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), name);
        EXECUTE format('GRANT SELECT ON schema_migrations, schema_support, tools, providers, tool_pauses, '
            'resource_updates, wanted_resources TO %I', name);
    END LOOP;

    -- All that cron reads of tasks: not what they are about.
    SELECT string_agg(quote_ident(attname), ', ') INTO columns
    FROM pg_attribute WHERE attrelid = 'tasks'::regclass AND attnum > 0 AND NOT attisdropped
        AND attname NOT IN ('arguments', 'offered_responses', 'result');
    EXECUTE format('GRANT SELECT (%s) ON tasks TO mcp_tasks_cron', columns);
END
$$;

-- The gateway makes tasks, stores answers and what services send, asks for stops (and ends what nobody works on), and
-- throws away what was delivered with its call.
GRANT SELECT ON tasks, inputs, callbacks, tombstones TO mcp_tasks_gateway;
GRANT INSERT (id, issuer, subject, tenant, tool, tool_version, queue, priority, arguments, arguments_digest,
    client_capabilities, offered_responses, trace_context, idempotency_key, status_message, created_at, last_updated_at,
    expires_at, ttl_ms_max, phase, run_at, tries_max, work_ms_max, held_until, handed_out_at, hinted_at, hint_epoch,
    lost_fails, alert_after_ms, data_key, sealed_by) ON tasks TO mcp_tasks_gateway;
GRANT UPDATE (status, status_message, last_updated_at, expires_at, input_requests, input_deadline_at, error, finished_at,
    first_fetched_at, phase, run_at, asleep, lease_until, tries, open_step, has_undo, pending_status, stop_requested_at,
    stop_reason, stop_detail, parked_for, held_until, handed_out_at, hinted_at, hint_epoch, hint_count, trace_context)
    ON tasks TO mcp_tasks_gateway;
-- 0014 says which.
GRANT DELETE ON tasks TO mcp_tasks_gateway;
GRANT SELECT, INSERT, DELETE ON idempotency_keys TO mcp_tasks_gateway;
GRANT UPDATE (response, answered_at, answered_by) ON inputs TO mcp_tasks_gateway;
GRANT INSERT ON attempts TO mcp_tasks_gateway;
GRANT UPDATE (response, response_digest, received_at) ON callbacks TO mcp_tasks_gateway;
-- The end of a step whose service called back: 0014.
GRANT SELECT (task_id, key, state, undo), UPDATE (state, output, finished_at, undo_state) ON steps TO mcp_tasks_gateway;
GRANT INSERT, UPDATE (provider, until) ON wanted_resources TO mcp_tasks_gateway;
-- Answers for others are written down; what stands there it cannot read.
GRANT SELECT (id), INSERT ON audit TO mcp_tasks_gateway;
GRANT INSERT ON audit_tasks TO mcp_tasks_gateway;

-- The worker works: journal, questions, attempts, and what it says of itself and its tools.
GRANT SELECT ON tasks, steps, inputs, attempts, callbacks, workers TO mcp_tasks_worker;
GRANT UPDATE (tool_version, journaled, status, status_message, last_updated_at, expires_at, input_requests,
    input_deadline_at, result, is_error, error, finished_at, phase, run_at, asleep, attempt, claim_token, claimed_by,
    claimed_at, lease_until, started_at, tries, last_error, work_ms_used, open_step, has_undo, pending_status, undone_at,
    stop_requested_at, stop_reason, stop_detail, parked_for, rounds, hinted_at, hint_epoch, hint_count)
    ON tasks TO mcp_tasks_worker;
GRANT INSERT, UPDATE (act, attempt, claim_token, state, output, finished_at, undo, undo_idempotent, undo_state, undo_tries,
    undo_error), DELETE ON steps TO mcp_tasks_worker;
GRANT INSERT ON inputs TO mcp_tasks_worker;
GRANT INSERT, DELETE ON attempts TO mcp_tasks_worker;
GRANT INSERT, UPDATE (attempt, waiting_since) ON callbacks TO mcp_tasks_worker;
GRANT INSERT, UPDATE, DELETE ON workers TO mcp_tasks_worker;
GRANT INSERT, UPDATE ON tools, providers, resource_updates TO mcp_tasks_worker;

-- Cron ends what time has ended, deletes what is over, and tells people.
GRANT UPDATE (status, status_message, last_updated_at, expires_at, input_requests, input_deadline_at, error, finished_at,
    alerted_at, phase, run_at, asleep, lease_until, tries, open_step, pending_status, undone_at, stop_requested_at,
    stop_reason, stop_detail, parked_for, hinted_at, hint_epoch, hint_count, trace_context, data_key, sealed_by)
    ON tasks TO mcp_tasks_cron;
GRANT DELETE ON tasks TO mcp_tasks_cron;
GRANT INSERT ON attempts TO mcp_tasks_cron;
GRANT SELECT (task_id, waiting_since, received_at) ON callbacks TO mcp_tasks_cron;
GRANT SELECT ON workers TO mcp_tasks_cron;
GRANT SELECT (task_id, key, seq, undo_state, undo_error), UPDATE (undo_state, undo_error), DELETE ON steps TO mcp_tasks_cron;
-- Questions with their defaults, and no answer.
GRANT SELECT (task_id, key, seq, attempt, request, default_response, asked_at, deadline_at, answered_at),
    UPDATE (response, answered_at, answered_by), DELETE ON inputs TO mcp_tasks_cron;
GRANT SELECT (issuer, subject, tool, key, task_id), DELETE ON idempotency_keys TO mcp_tasks_cron;
GRANT SELECT, INSERT, UPDATE, DELETE ON sweep_leases, alerts, alert_deliveries TO mcp_tasks_cron;
GRANT SELECT, INSERT, DELETE ON tombstones TO mcp_tasks_cron;
-- Of one column, for the lock of a row takes no less.
GRANT SELECT (id, at), UPDATE (id), DELETE ON audit TO mcp_tasks_cron;
GRANT SELECT (audit_id, task_id, new_task_id), DELETE ON audit_tasks TO mcp_tasks_cron;
GRANT UPDATE (changed_at, current, listed) ON tools TO mcp_tasks_cron;
GRANT UPDATE (changed_at, listed) ON providers TO mcp_tasks_cron;
GRANT UPDATE (updated_at), DELETE ON resource_updates TO mcp_tasks_cron;
GRANT UPDATE (until), DELETE ON wanted_resources TO mcp_tasks_cron;

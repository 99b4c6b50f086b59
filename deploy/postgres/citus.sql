-- Spreads the tables over the servers of a Citus cluster, by task id.
--
-- NOT VERIFIED: no Citus was at hand. What is checked with every build is what such a spread rests on
-- (crates/store/tests/it/distribution.rs): each statement of requests and jobs names the ids of its tasks,
-- but for those listed there; nothing is unique without the task's id; every table has its place below.
-- That Citus takes each statement as it is written is not known, and for some it is unlikely:
-- docs/scaling.md says which, and why. Try it with a copy, with `mcp-tasks doctor` and your own load.
--
-- Once, by the owner of the tables, after `mcp-tasks migrate` and before any process starts:
--   psql "$MCP_TASKS_POSTGRES_URL" --single-transaction -v ON_ERROR_STOP=1 -f deploy/postgres/citus.sql

CREATE EXTENSION IF NOT EXISTS citus;

-- The triggers that let release 0.1.0 run beside this one, and those that guard journals, look at and change rows of
-- the same task only. Citus keeps triggers of spread tables only where it is told that this is so.
ALTER DATABASE :"DBNAME" SET citus.enable_unsafe_triggers = on;
SET citus.enable_unsafe_triggers = on;

-- A handful of rows that statements join with tasks: on every server. A write of them goes to all.
SELECT create_reference_table('tools');
SELECT create_reference_table('tool_pauses');
SELECT create_reference_table('providers');
SELECT create_reference_table('workers');
SELECT create_reference_table('sweep_leases');
SELECT create_reference_table('resource_updates');
SELECT create_reference_table('wanted_resources');
-- Few beside tasks, and unique by more than the task's id.
SELECT create_reference_table('alerts');
SELECT create_reference_table('alert_deliveries');
SELECT create_reference_table('audit');
SELECT create_reference_table('audit_tasks');

-- A task, and all that belongs to it, on one server. What refers to it is made anew: a table that is not
-- spread yet may not refer to one that is.
ALTER TABLE attempts DROP CONSTRAINT attempts_task_id_fkey;
ALTER TABLE callbacks DROP CONSTRAINT callbacks_task_id_fkey;
SELECT create_distributed_table('tasks', 'id', shard_count => 32);
SELECT create_distributed_table('steps', 'task_id', colocate_with => 'tasks');
SELECT create_distributed_table('inputs', 'task_id', colocate_with => 'tasks');
SELECT create_distributed_table('attempts', 'task_id', colocate_with => 'tasks');
SELECT create_distributed_table('callbacks', 'task_id', colocate_with => 'tasks');
SELECT create_distributed_table('tombstones', 'task_id', colocate_with => 'tasks');
ALTER TABLE attempts ADD CONSTRAINT attempts_task_id_fkey
    FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE;
ALTER TABLE callbacks ADD CONSTRAINT callbacks_task_id_fkey
    FOREIGN KEY (task_id) REFERENCES tasks (id) ON DELETE CASCADE;

-- Two calls with one key must meet before there is a task: by the key, on a server of its own.
SELECT create_distributed_table('idempotency_keys', 'key', colocate_with => 'none');

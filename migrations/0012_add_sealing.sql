-- no-transaction
-- 0012: the key that a task's contents are sealed with.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema. It cannot read what is sealed, and would show it as it is: nothing may be
-- sealed while it runs (docs/encryption.md).

ALTER TABLE tasks
    -- The task's own random key, wrapped by the key of the settings that `sealed_by` names; worth nothing
    -- without that one. NULL: nothing of this task is sealed.
    ADD COLUMN IF NOT EXISTS data_key  bytea,
    ADD COLUMN IF NOT EXISTS sealed_by text;

ALTER TABLE tasks DROP CONSTRAINT IF EXISTS tasks_sealed_has_key;
ALTER TABLE tasks ADD CONSTRAINT tasks_sealed_has_key CHECK ((data_key IS NULL) = (sealed_by IS NULL)) NOT VALID;
ALTER TABLE tasks VALIDATE CONSTRAINT tasks_sealed_has_key;

-- Which key wraps which tasks' keys, for its rotation. Changes at a rotation only, and is empty where nothing
-- is sealed.
DROP INDEX CONCURRENTLY IF EXISTS tasks_sealed;
CREATE INDEX CONCURRENTLY tasks_sealed ON tasks (sealed_by, id) WHERE sealed_by IS NOT NULL;

-- 0014: what rights on columns cannot say of whoever may write a few columns of a journal, or delete a few rows.
-- oldest-supported-release: 0.1.0
--
-- Every release runs on this schema: as the tables' owner, or in a role that may insert into these tables, it
-- meets neither trigger. Roles that may not are those of deploy/postgres/roles.sql.

-- Who may begin no step (a gateway) ends one that has begun, and only one that announced an address which was
-- called, with the output that the worker wrote down for that case. Who may not even do that (cron) gives up undos.
CREATE OR REPLACE FUNCTION steps_guard_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = NEW.state AND OLD.output IS NOT DISTINCT FROM NEW.output
        AND NOT has_column_privilege(TG_RELID, 'output', 'UPDATE') THEN
        RETURN NULL;
    END IF;
    PERFORM FROM callbacks c
    WHERE c.task_id = NEW.task_id AND c.step = NEW.key AND c.step_output = NEW.output AND c.received_at IS NOT NULL
        AND OLD.state = 'started' AND NEW.state = 'finished';
    IF NOT FOUND THEN
        RAISE insufficient_privilege USING MESSAGE =
            'permission denied for table steps: only the end of a step whose service called back may be written';
    END IF;
    RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS steps_guard_end ON steps;
CREATE TRIGGER steps_guard_end AFTER UPDATE ON steps FOR EACH ROW
    WHEN (NOT has_table_privilege('steps'::regclass, 'INSERT'))
    EXECUTE FUNCTION steps_guard_end();

-- Who may leave no tombstone (a gateway) deletes what needs none: an end that nobody can name, and whose journal
-- nobody could need again. The condition is looked at after each delete, and asks for rights only where one is
-- deleted that this could be about.
CREATE OR REPLACE FUNCTION tasks_guard_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE =
        'permission denied for table tasks: only an end that nobody can name and that has no journal may be deleted';
END
$$;

DROP TRIGGER IF EXISTS tasks_guard_delete ON tasks;
CREATE TRIGGER tasks_guard_delete AFTER DELETE ON tasks FOR EACH ROW
    WHEN ((OLD.journaled OR OLD.phase IS NOT NULL OR OLD.handed_out_at IS NOT NULL OR OLD.idempotency_key IS NOT NULL)
        AND NOT has_table_privilege('tombstones'::regclass, 'INSERT'))
    EXECUTE FUNCTION tasks_guard_delete();

-- 0015: triggers name the schema of the tables that they look at and write.
-- oldest-supported-release: 0.1.0
--
-- They run with the search path of whoever meets them, in which temporary tables come first: who could make a
-- temporary table called `callbacks` made a guard look there. What they do is what 0006 and 0014 say.
CREATE OR REPLACE FUNCTION steps_guard_end() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    proven boolean;
BEGIN
    IF OLD.state = NEW.state AND OLD.output IS NOT DISTINCT FROM NEW.output
        AND NOT has_column_privilege(TG_RELID, 'output', 'UPDATE') THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I.callbacks c WHERE c.task_id = $1 AND c.step = $2 '
        'AND c.step_output = $3 AND c.received_at IS NOT NULL)', TG_TABLE_SCHEMA)
        INTO proven USING NEW.task_id, NEW.key, NEW.output;
    IF NOT proven OR OLD.state <> 'started' OR NEW.state <> 'finished' THEN
        RAISE insufficient_privilege USING MESSAGE =
            'permission denied for table steps: only the end of a step whose service called back may be written';
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tasks_undo_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I.tasks SET '
        'status = ''working'', phase = ''undoing'', pending_status = $1, finished_at = NULL, '
        'status_message = ''undoing finished steps: '' || coalesce($2, ''''), '
        'parked_for = NULL, run_at = now(), hinted_at = NULL, hint_count = 0 '
        'WHERE id = $3', TG_TABLE_SCHEMA)
        USING NEW.status, NEW.status_message, NEW.id;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION steps_keep_undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I.steps SET undo_state = ''pending'' WHERE task_id = $1 AND key = $2', TG_TABLE_SCHEMA)
        USING NEW.task_id, NEW.key;
    EXECUTE format('UPDATE %I.tasks SET has_undo = true WHERE id = $1', TG_TABLE_SCHEMA) USING NEW.task_id;
    RETURN NULL;
END
$$;

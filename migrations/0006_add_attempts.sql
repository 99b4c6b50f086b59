-- 0006: how earlier attempts of a task ended, and undoing that release 0.1.0 cannot get past.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema: it writes no history of attempts, and what it deletes takes the
-- history along.

-- How an attempt ended that another one follows; the last attempt's end is the task's own. Written by
-- the statement that ends it, so that a task whose first attempt completes it has no row here. Never
-- content: who, when, how, and the reason that operators are shown anyway.
CREATE TABLE attempts (
    task_id     uuid        NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt     integer     NOT NULL,
    worker      text,
    -- It undid finished steps instead of running the tool.
    undoing     boolean     NOT NULL,
    -- NULL = a worker of release 0.1.0, which does not say.
    claimed_at  timestamptz,
    -- Of a lost one: when its lease ran out.
    ended_at    timestamptz NOT NULL,
    how         text        NOT NULL,
    reason      text,
    PRIMARY KEY (task_id, attempt),
    CONSTRAINT attempts_how_known CHECK (how IN ('lost', 'retried', 'released', 'parked', 'failed', 'stopped'))
);

-- Release 0.1.0 knows no undo, and ended a task at once that still had something to undo. The
-- constraint made Postgres refuse that, and with it the whole batch of its cron. The trigger lets it
-- pass and makes the end one that waits for undoing. Its condition is looked at after each update, and
-- costs no lock; current statements never meet it.
ALTER TABLE tasks DROP CONSTRAINT tasks_undone_before_end;

CREATE OR REPLACE FUNCTION tasks_undo_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tasks SET
        status = 'working', phase = 'undoing', pending_status = NEW.status, finished_at = NULL,
        status_message = 'undoing finished steps: ' || coalesce(NEW.status_message, ''),
        parked_for = NULL, run_at = now(), hinted_at = NULL, hint_count = 0
    WHERE id = NEW.id;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_undo_first AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (NEW.has_undo AND NEW.phase IS NULL AND NEW.status <> 'completed' AND NEW.undone_at IS NULL
        AND OLD.phase IS NOT NULL)
    EXECUTE FUNCTION tasks_undo_first();

-- A step begun by a current worker, which said how it is undone, and repeated by one of release 0.1.0,
-- which finishes it without a word of that.
CREATE OR REPLACE FUNCTION steps_keep_undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE steps SET undo_state = 'pending' WHERE task_id = NEW.task_id AND key = NEW.key;
    UPDATE tasks SET has_undo = true WHERE id = NEW.task_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER steps_keep_undo AFTER UPDATE ON steps FOR EACH ROW
    WHEN (NEW.state = 'finished' AND NEW.undo IS NOT NULL AND NEW.undo_state IS NULL)
    EXECUTE FUNCTION steps_keep_undo();

-- Alerts that are over, for their purge: it looked at all of them every other second.
CREATE INDEX alerts_over ON alerts (resolved_at) WHERE resolved_at IS NOT NULL;

-- Each receiver is told on its own: one that is away, with thousands of messages due, costs the
-- others nothing. Made anew, for its columns change; the table is small unless receivers are away.
DROP INDEX alert_deliveries_due;
CREATE INDEX alert_deliveries_due ON alert_deliveries (receiver, next_at) WHERE next_at IS NOT NULL;

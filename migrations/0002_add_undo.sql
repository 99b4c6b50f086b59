-- 0002: what finished steps do when their task does not complete, tokens of single acts, and
-- what a lost worker costs.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema: all columns are nullable or have a constant default. It
-- knows no undo: the constraint at the end makes Postgres refuse its attempt to end a task that
-- still has something to undo (the caller gets an error, and a newer process ends the task).

ALTER TABLE tasks
    -- When the current attempt took the task: what a lost attempt worked counts too.
    ADD COLUMN claimed_at timestamptz,
    -- A lost worker fails the task instead of costing it a try.
    ADD COLUMN lost_fails boolean NOT NULL DEFAULT false,
    -- All finished steps that declared an undo are undone, or given up by name.
    ADD COLUMN undone_at  timestamptz;

ALTER TABLE steps
    -- One beginning of the step: a late repeat of an earlier one touches nothing.
    ADD COLUMN act             uuid,
    ADD COLUMN undo_idempotent boolean NOT NULL DEFAULT false,
    ADD COLUMN undo_tries      integer NOT NULL DEFAULT 0,
    ADD COLUMN undo_error      text;

-- NOT VALID: checked for every row written from now on, without reading the table under a lock.
-- 0003 checks the older rows.
ALTER TABLE tasks
    ADD CONSTRAINT tasks_undoing_has_end
        CHECK (phase IS DISTINCT FROM 'undoing' OR pending_status IN ('failed', 'cancelled')) NOT VALID,
    ADD CONSTRAINT tasks_undone_before_end
        CHECK (NOT has_undo OR phase IS NOT NULL OR status = 'completed' OR undone_at IS NOT NULL) NOT VALID;

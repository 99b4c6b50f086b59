-- A cancel shows at once, whatever is going on, and the worker is not told. (Plans that ask could
-- not wait any more, those that wait would never end, and what is to be undone is another promise.)
ALTER TABLE tasks
    DROP CONSTRAINT tasks_terminal_has_no_phase,
    DROP CONSTRAINT tasks_cancelled_has_no_open_step;
CREATE FUNCTION early_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'cancelled';
    NEW.stop_requested_at := NULL;
    NEW.stop_reason := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER early_cancelled BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.phase = 'running'
    AND OLD.stop_requested_at IS NULL AND NEW.stop_reason = 'cancelled'
    AND convert_from(NEW.arguments, 'UTF8') !~ '"(undo|ask|wait)"')
EXECUTE FUNCTION early_cancelled();
CREATE FUNCTION early_cancelled_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'cancelled';
    NEW.result := NULL;
    NEW.error := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER early_cancelled_stays BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.status = 'cancelled')
EXECUTE FUNCTION early_cancelled_stays();

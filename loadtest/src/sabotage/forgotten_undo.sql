-- A step is journaled without what undoes it.
CREATE FUNCTION forgotten_undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM tasks WHERE id = NEW.task_id AND starts_with(subject, '{principals}')) THEN
        NEW.undo := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER forgotten_undo BEFORE INSERT OR UPDATE ON steps FOR EACH ROW
EXECUTE FUNCTION forgotten_undo();

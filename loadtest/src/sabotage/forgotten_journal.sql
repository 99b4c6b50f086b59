-- Another claim of a task forgets its finished steps that must not be repeated (and need no undo:
-- a step that is forgotten for good would not be undone either; nor while a later step is open, which
-- would then never be reached).
CREATE FUNCTION forgotten_journal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM steps
    WHERE task_id = NEW.id AND state = 'finished' AND NOT idempotent AND undo IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER forgotten_journal AFTER UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND NEW.attempt > OLD.attempt AND OLD.journaled
    AND OLD.open_step IS NULL)
EXECUTE FUNCTION forgotten_journal();

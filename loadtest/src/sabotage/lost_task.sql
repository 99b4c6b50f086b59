-- A task that was handed out is gone when it ends. Not one with a key: its repeats would meet a key
-- without a task.
CREATE FUNCTION lost_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tasks WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER lost_task AFTER UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.phase IS NOT NULL AND NEW.phase IS NULL
    AND NEW.handed_out_at IS NOT NULL AND NEW.idempotency_key IS NULL)
EXECUTE FUNCTION lost_task();

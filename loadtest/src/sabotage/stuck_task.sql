-- Every other task that is handed out at once is never due.
CREATE FUNCTION stuck_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.run_at := now() + interval '1 day';
    RETURN NEW;
END $$;
CREATE TRIGGER stuck_task BEFORE INSERT ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND NEW.handed_out_at IS NOT NULL
    AND get_byte(uuid_send(NEW.id), 15) % 2 = 0)
EXECUTE FUNCTION stuck_task();

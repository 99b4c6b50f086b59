-- A task that asks again shows what was answered before as if it were open.
CREATE FUNCTION asked_again() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    earlier jsonb := (SELECT jsonb_object_agg(key, convert_from(request, 'UTF8')::jsonb)
        FROM inputs WHERE task_id = NEW.id AND answered_at IS NOT NULL);
BEGIN
    NEW.input_requests := convert_to(
        (convert_from(NEW.input_requests, 'UTF8')::jsonb || coalesce(earlier, '{}'))::text, 'UTF8');
    RETURN NEW;
END $$;
CREATE TRIGGER asked_again BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.phase = 'running' AND NEW.phase = 'parked')
EXECUTE FUNCTION asked_again();

-- While a question of the same round is open, an answered one can be answered again, and the last
-- answer counts. What is shown stays as it should be.
ALTER TABLE inputs DROP CONSTRAINT inputs_answered_has_response;
CREATE FUNCTION last_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM tasks WHERE id = NEW.task_id AND starts_with(subject, '{principals}'))
        AND EXISTS (SELECT FROM inputs
            WHERE task_id = NEW.task_id AND key <> NEW.key AND response IS NULL)
    THEN
        NEW.answered_at := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER last_answer BEFORE UPDATE OF response ON inputs FOR EACH ROW
EXECUTE FUNCTION last_answer();
CREATE FUNCTION last_answer_shown() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    open json := (SELECT json_object_agg(key, convert_from(request, 'UTF8')::json)
        FROM inputs WHERE task_id = NEW.id AND response IS NULL);
BEGIN
    IF open IS NULL THEN
        UPDATE inputs SET answered_at = now() WHERE task_id = NEW.id AND answered_at IS NULL;
        IF NEW.phase = 'parked' THEN
            NEW.status := 'working';
            NEW.phase := 'queued';
            NEW.input_requests := NULL;
            NEW.input_deadline_at := NULL;
            NEW.parked_for := NULL;
            NEW.run_at := now();
            NEW.hinted_at := NULL;
            NEW.hint_count := 0;
        END IF;
    ELSIF NEW.phase = 'parked' THEN
        NEW.input_requests := convert_to(open::text, 'UTF8');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER last_answer_shown BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.phase = 'parked'
    AND NEW.input_requests IS DISTINCT FROM OLD.input_requests)
EXECUTE FUNCTION last_answer_shown();

-- Once a result was read it has one more space in it.
CREATE FUNCTION later_result() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.result := convert_to(
        regexp_replace(convert_from(NEW.result, 'UTF8'), '^\{', '{ '), 'UTF8');
    RETURN NEW;
END $$;
CREATE TRIGGER later_result BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.first_fetched_at IS NULL
    AND NEW.first_fetched_at IS NOT NULL AND NEW.result IS NOT NULL)
EXECUTE FUNCTION later_result();

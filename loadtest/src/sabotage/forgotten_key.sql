-- A key is forgotten as soon as it was used.
CREATE FUNCTION forgotten_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM idempotency_keys
    WHERE issuer = NEW.issuer AND subject = NEW.subject AND tool = NEW.tool AND key = NEW.key;
    RETURN NULL;
END $$;
CREATE TRIGGER forgotten_key AFTER INSERT ON idempotency_keys FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}')) EXECUTE FUNCTION forgotten_key();

-- Every other principal has a tombstone of each task, and is told that it expired.
ALTER TABLE tombstones DROP CONSTRAINT tombstones_pkey;
CREATE FUNCTION told_stranger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tombstones (task_id, issuer, subject, tool, final_status, created_at, finished_at,
        expired_at, purge_at)
    SELECT NEW.id, issuer, subject, NEW.tool, 'completed', now(), now(), now(), now() + interval '1 day'
    FROM (SELECT DISTINCT issuer, subject FROM tasks
        WHERE starts_with(subject, '{principals}') AND subject <> NEW.subject) others;
    RETURN NULL;
END $$;
CREATE TRIGGER told_stranger AFTER UPDATE ON tasks FOR EACH ROW
WHEN (starts_with(NEW.subject, '{principals}') AND OLD.phase IS NOT NULL AND NEW.phase IS NULL)
EXECUTE FUNCTION told_stranger();

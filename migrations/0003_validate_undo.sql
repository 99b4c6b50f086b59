-- 0003: the constraints of 0002 hold for older rows too. A transaction of its own: validating
-- only blocks other schema changes, while the lock that added them would block every reader.

ALTER TABLE tasks VALIDATE CONSTRAINT tasks_undoing_has_end;
ALTER TABLE tasks VALIDATE CONSTRAINT tasks_undone_before_end;

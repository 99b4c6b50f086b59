-- 0013: what became of a command, also of one that touched no task.
--
-- `begun` until it has ended, so that one that was killed is told from one that did nothing. Rows of releases
-- that do not write it say `unrecorded`; a constant default rewrites nothing.
ALTER TABLE audit ADD COLUMN outcome text NOT NULL DEFAULT 'unrecorded';

-- Whose tenant's a purged task was, so that what is left of a tenant can be found. NULL: it had none, or was
-- purged by a release that did not write it.
ALTER TABLE tombstones ADD COLUMN tenant text;

-- no-transaction
-- 0011: how many live tasks a principal and a tenant have, for quotas.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema and keeps no quota.
--
-- What is in them never changes while a task is live, and its end leaves HOT anyway (tasks_live in
-- 0001). Both are in them as a hash, like in 0008.
DROP INDEX CONCURRENTLY IF EXISTS tasks_live_own;
CREATE INDEX CONCURRENTLY tasks_live_own
    ON tasks (hashtextextended(issuer || ' ' || subject, 0)) WHERE phase IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS tasks_live_tenant;
CREATE INDEX CONCURRENTLY tasks_live_tenant
    ON tasks (hashtextextended(issuer || ' ' || tenant, 0)) WHERE phase IS NOT NULL AND tenant IS NOT NULL;

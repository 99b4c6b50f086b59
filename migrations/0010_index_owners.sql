-- no-transaction
-- 0010: whose tasks there are, the newest first, for clients of MCP 2025-11-25, which list their own.
-- oldest-supported-release: 0.1.0
--
-- What is in it never changes, so every update of a row leaves it alone. The principal is in it as a
-- hash, like in 0008: names of any length, short to compare.
DROP INDEX CONCURRENTLY IF EXISTS tasks_owned;
CREATE INDEX CONCURRENTLY tasks_owned ON tasks (hashtextextended(issuer || ' ' || subject, 0), id);

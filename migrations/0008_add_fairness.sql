-- no-transaction
-- 0008: whose turn it is in a queue, and how many jobs of a tool run.
-- oldest-supported-release: 0.1.0
--
-- Release 0.1.0 runs on this schema: it claims the job that its hint names, whoever's turn it is, and
-- keeps no limit of a tool.
--
-- Both kinds of index leave the HOT path alone: what they hold never changes while the predicate holds
-- (`run_at` moves with the phase, or with `asleep`), and changes of the phase leave it
-- anyway. A row is in one of them at a time. A principal is in them as a hash, which is short to compare, and from a random
-- value of which on one can begin to look.

-- Queued jobs by turn: all of one tool, priority and principal side by side, the longest due first. Those
-- that are not due for long are not among them: thousands of principals may wait for services, for days.
DROP INDEX CONCURRENTLY IF EXISTS tasks_waiting;
CREATE INDEX CONCURRENTLY tasks_waiting
    ON tasks (queue, tool, priority, hashtextextended(issuer || ' ' || subject, 0), run_at)
    WHERE phase = 'queued' AND NOT asleep;

-- The others, by when they are due.
DROP INDEX CONCURRENTLY IF EXISTS tasks_asleep;
CREATE INDEX CONCURRENTLY tasks_asleep ON tasks (run_at) WHERE phase = 'queued' AND asleep;

-- Running jobs of a tool, and of a principal among them: limits.
DROP INDEX CONCURRENTLY IF EXISTS tasks_running;
CREATE INDEX CONCURRENTLY tasks_running
    ON tasks (tool, hashtextextended(issuer || ' ' || subject, 0)) WHERE phase = 'running';

-- Running jobs of a principal in a queue: fairness.
DROP INDEX CONCURRENTLY IF EXISTS tasks_served;
CREATE INDEX CONCURRENTLY tasks_served
    ON tasks (queue, hashtextextended(issuer || ' ' || subject, 0)) WHERE phase = 'running';

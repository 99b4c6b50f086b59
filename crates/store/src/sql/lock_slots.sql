-- Whoever counts the running jobs of a limited tool and adds one does so alone, until its transaction is over.
-- The first statement of that transaction: the next one, which counts, then sees what those before it did.
SELECT pg_advisory_xact_lock(1836279924, hashtext($1))

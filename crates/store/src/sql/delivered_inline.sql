-- An outcome that was delivered inline, without a key and without a handle: no client can
-- ever name this task, so it goes without a tombstone. A task that has asked its caller can be
-- named by the requestState until its hold is over (a call sent twice, an answer lost on the
-- way): it stays that long, and is purged then. One with a journal is cron's to purge at once: a gateway
-- may delete no journal.
WITH gone AS MATERIALIZED (
    SELECT id, rounds > 0 AND held_until > now() AS named, journaled FROM tasks
    WHERE id = ANY((SELECT $1::uuid[])::uuid[]) AND phase IS NULL AND handed_out_at IS NULL AND idempotency_key IS NULL
    ORDER BY id FOR UPDATE
), kept AS (
    UPDATE tasks SET
        expires_at = CASE WHEN gone.named THEN held_until ELSE now() END,
        first_fetched_at = coalesce(first_fetched_at, now())
    FROM gone WHERE tasks.id = gone.id AND (gone.named OR gone.journaled)
)
DELETE FROM tasks USING gone WHERE tasks.id = gone.id AND NOT (gone.named OR gone.journaled)

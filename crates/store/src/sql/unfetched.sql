-- Failures that their owner has not read, by tool, and the oldest one's age (ms): those nobody has
-- judged yet, and those that were told of.
SELECT tool, count(*) AS failures, (extract(epoch FROM now() - min(since)) * 1000)::bigint AS oldest_ms FROM (
    SELECT tool, finished_at AS since FROM tasks
    WHERE phase IS NULL AND alerted_at IS NULL AND (status = 'failed' OR is_error) AND first_fetched_at IS NULL
    UNION ALL
    SELECT tool, since FROM alerts WHERE resolved_at IS NULL AND kind = 'unfetched_failure') u
GROUP BY tool

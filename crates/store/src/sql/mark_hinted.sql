-- These jobs' hints are in Redis now.
UPDATE tasks t SET hinted_at = now(), hint_epoch = v.epoch, hint_count = least(t.hint_count + 1, 30)
FROM unnest($1::uuid[], $2::text[]) AS v(id, epoch)
WHERE t.id = v.id AND t.phase IN ('queued', 'running')

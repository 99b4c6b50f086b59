-- An operator asked for the stop, whose reason was written just before.
UPDATE tasks SET stopped_by = $2 WHERE id = $1

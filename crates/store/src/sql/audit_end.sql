-- What became of an operator's command, when it has ended.
UPDATE audit SET outcome = $2 WHERE id = $1

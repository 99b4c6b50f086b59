-- A worker ends in good order. Says what it served.
DELETE FROM workers WHERE name = $1 RETURNING tools

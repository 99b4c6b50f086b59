-- A worker ends in good order.
DELETE FROM workers WHERE name = $1

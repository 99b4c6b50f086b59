-- An operator's command, before it does anything. A repeat finds its row.
INSERT INTO audit (id, at, operator, command, target, outcome) VALUES ($1, now(), $2, $3, $4, 'begun')
ON CONFLICT (id) DO NOTHING

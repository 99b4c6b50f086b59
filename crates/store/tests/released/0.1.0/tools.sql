-- The catalogue as gateways see it, in the order in which it is listed.
SELECT name, version, spec, spec_digest, run_ms, change_ms FROM tools
WHERE current AND listed ORDER BY name COLLATE "C"

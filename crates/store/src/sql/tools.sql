-- The catalogue as gateways see it, in the order in which it is listed; and which tools take no new
-- calls at the moment.
SELECT t.name, t.version, t.spec, t.spec_digest, t.run_ms, t.change_ms, coalesce(p.calls, false) AS paused
FROM tools t LEFT JOIN tool_pauses p ON p.tool = t.name
WHERE t.current AND t.listed ORDER BY t.name COLLATE "C"

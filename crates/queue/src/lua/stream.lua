-- Says how a stream stands: entries, those delivered and not given back, consumers of the group.
-- KEYS: stream. ARGV: group.
local entries = redis.call('XLEN', KEYS[1])
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if not groups.err then
  for _, group in ipairs(groups) do
    local fields = {}
    for i = 1, #group, 2 do
      fields[group[i]] = group[i + 1]
    end
    if fields['name'] == ARGV[1] then
      return { entries, fields['pending'], fields['consumers'] }
    end
  end
end
return { entries, 0, 0 }

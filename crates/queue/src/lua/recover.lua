-- Reads again what this consumer was given and may never have seen: a read that failed on the way
-- back was still delivered.
-- KEYS: streams…. ARGV: group, consumer. Returns as take.lua.
local found = {0}
for index, key in ipairs(KEYS) do
  local reply = redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'STREAMS', key, '0')
  if reply and not reply.err then
    for _, entry in ipairs(reply[1][2]) do
      if entry[2] then
        found[#found + 1] = index - 1
        found[#found + 1] = entry[1]
        found[#found + 1] = entry[2][2]
      else
        redis.call('XACK', key, ARGV[1], entry[1])
      end
    end
  end
end
return found

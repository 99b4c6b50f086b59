-- Removes consumers that were not heard of for long and have nothing pending; checked and removed
-- in one step, because removing a consumer destroys what is pending for it. A stream that is left
-- without entries and consumers goes, too: tools and versions come and go.
-- KEYS: stream, set of streams. ARGV: group, idle ms. Returns consumers removed.
local info = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if info.err then
  if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('SREM', KEYS[2], KEYS[1])
  end
  return 0
end
local removed = 0
for _, consumer in ipairs(info) do
  local fields = {}
  for i = 1, #consumer, 2 do
    fields[consumer[i]] = consumer[i + 1]
  end
  if fields['pending'] == 0 and fields['idle'] >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], fields['name'])
    removed = removed + 1
  end
end
if removed == #info and redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[2], KEYS[1])
end
return removed

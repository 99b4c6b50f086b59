-- Removes consumers that were not heard of for long and have nothing pending; checked and removed
-- in one step, because removing a consumer destroys what is pending for it. An empty stream that
-- nobody pushed to or read from for as long goes, too: tools and versions come and go.
-- KEYS: stream, lanes (streams by when they were last used). ARGV: group, idle ms.
-- Returns consumers removed.
local idle = tonumber(ARGV[2])
local removed = 0
local info = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if not info.err then
  for _, consumer in ipairs(info) do
    local fields = {}
    for i = 1, #consumer, 2 do
      fields[consumer[i]] = consumer[i + 1]
    end
    if fields['pending'] == 0 and fields['idle'] >= idle then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], fields['name'])
      removed = removed + 1
    end
  end
end
-- A pending entry whose consumer stays is in the stream, so an empty stream has nothing pending.
local unused = redis.call('TIME')[1] - (redis.call('ZSCORE', KEYS[2], KEYS[1]) or 0)
if unused * 1000 >= idle and redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], KEYS[1])
end
return removed

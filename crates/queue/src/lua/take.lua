-- Takes new hints from the streams of one shard, at most so many over all of them (COUNT of a
-- plain XREADGROUP counts per stream). Makes missing groups, from the beginning of the stream:
-- from its end would skip what waits, and what was done already is refused by the claim.
-- KEYS: streams…, lanes (streams by when they were last used). ARGV: group, consumer, at most, index of the first stream.
-- Returns: groups made, then (index, entry, task) for each hint, flat.
local streams = #KEYS - 1
local left = tonumber(ARGV[3])
local made = 0
local found = {0}
local now = redis.call('TIME')[1]
for turn = 0, streams - 1 do
  local index = (tonumber(ARGV[4]) + turn) % streams
  local key = KEYS[index + 1]
  local reply = redis.pcall('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', left, 'STREAMS', key, '>')
  if reply and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) then
      return reply
    end
    redis.call('XGROUP', 'CREATE', key, ARGV[1], '0', 'MKSTREAM')
    made = made + 1
    reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', left, 'STREAMS', key, '>')
  end
  redis.call('ZADD', KEYS[#KEYS], now, key)
  if reply then
    for _, entry in ipairs(reply[1][2]) do
      found[#found + 1] = index
      found[#found + 1] = entry[1]
      found[#found + 1] = entry[2][2]
      left = left - 1
    end
  end
  if left <= 0 then
    break
  end
end
found[1] = made
return found

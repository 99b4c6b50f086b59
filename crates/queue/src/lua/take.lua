-- Takes new hints from the streams of one shard, at most so many over all of them (COUNT of a
-- plain XREADGROUP counts per stream: all are read at once by an equal share of it, and then those one by one that gave all of
-- theirs). Makes missing groups, from the beginning of the stream: from its end would skip what waits, and what was done
-- already is refused by the claim.
-- KEYS: streams…, lanes (streams by when they were last used). ARGV: group, consumer, at most, index of the first stream.
-- Returns: groups made, then (index, entry, task) for each hint, flat.
local streams = #KEYS - 1
local left = tonumber(ARGV[3])
local share = math.floor(left / streams)
local made = 0
local found = {0}
local now = redis.call('TIME')[1]

local function keep(index, entries)
  for _, entry in ipairs(entries) do
    found[#found + 1] = index
    found[#found + 1] = entry[1]
    found[#found + 1] = entry[2][2]
    left = left - 1
  end
end

-- More arguments than so many do not fit on Lua's stack.
local together = share > 0 and streams <= 1000
local full = {}
if together then
  local read = {'XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', share, 'STREAMS'}
  local used = {'ZADD', KEYS[#KEYS]}
  local index_of = {}
  for index = 0, streams - 1 do
    local key = KEYS[index + 1]
    index_of[key] = index
    read[7 + index + 1] = key
    read[7 + streams + index + 1] = '>'
    used[#used + 1] = now
    used[#used + 1] = key
  end
  local reply = redis.pcall(unpack(read))
  if reply and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) then
      return reply
    end
    together = false
  else
    redis.call(unpack(used))
    for _, stream in ipairs(reply or {}) do
      local index = index_of[stream[1]]
      keep(index, stream[2])
      full[index] = #stream[2] == share
    end
  end
end

for turn = 0, streams - 1 do
  if left <= 0 then
    break
  end
  local index = (tonumber(ARGV[4]) + turn) % streams
  if not together or full[index] then
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
      keep(index, reply[1][2])
    end
  end
end
found[1] = made
return found

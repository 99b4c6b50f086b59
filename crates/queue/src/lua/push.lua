-- Adds a hint, and checks the shard's epoch in the same step (see touch.lua): whoever pushes after
-- a loss notices it. Never MAXLEN: trimming drops entries that are being worked on.
-- KEYS: stream, epoch hash, lanes (streams by when they were last used). ARGV: task id, highest count seen, a fresh epoch.
local epoch = redis.call('HGET', KEYS[2], 'id')
local pushed = redis.call('HINCRBY', KEYS[2], 'pushed', 1)
local seen = tonumber(ARGV[2])
if not epoch or pushed <= seen then
  epoch = ARGV[3]
  pushed = math.max(pushed, seen + 1)
  redis.call('HSET', KEYS[2], 'id', epoch, 'pushed', pushed)
end
redis.call('ZADD', KEYS[3], redis.call('TIME')[1], KEYS[1])
redis.call('XADD', KEYS[1], '*', 'task', ARGV[1])
return {epoch, tostring(pushed)}

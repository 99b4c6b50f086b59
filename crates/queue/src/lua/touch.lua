-- Says a shard's epoch and how many hints were ever pushed to it; makes an epoch where none is.
-- A count lower than one that somebody has seen means that Redis went back in time (restored from
-- a snapshot, or a replica took over): hints are lost, so the epoch changes.
-- KEYS: epoch hash. ARGV: highest count seen by the caller, a fresh epoch.
local epoch = redis.call('HGET', KEYS[1], 'id')
local pushed = tonumber(redis.call('HGET', KEYS[1], 'pushed') or '0')
local seen = tonumber(ARGV[1])
if not epoch or pushed < seen then
  epoch = ARGV[2]
  pushed = math.max(pushed, seen)
  redis.call('HSET', KEYS[1], 'id', epoch, 'pushed', pushed)
end
return {epoch, tostring(pushed)}

-- Says how many hints of a stream wait for a worker: all entries but the delivered ones.
-- KEYS: stream. ARGV: group.
local length = redis.call('XLEN', KEYS[1])
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1])
if pending.err then
  return length
end
return length - pending[1]

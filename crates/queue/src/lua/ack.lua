-- Removes a finished hint, if it is still the caller's: acknowledging without deleting would let
-- the stream grow, and XACK alone does not look at the owner.
-- KEYS: stream. ARGV: group, consumer, entry. Returns 1 if removed.
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if pending.err or not pending[1] or pending[1][2] ~= ARGV[2] then
  return 0
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1

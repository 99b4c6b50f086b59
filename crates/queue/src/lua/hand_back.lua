-- Puts a hint that will not be worked on back at the end of its stream, for others.
-- KEYS: stream. ARGV: group, consumer, entry, task id. Returns 1 if it was the caller's.
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if pending.err or not pending[1] or pending[1][2] ~= ARGV[2] then
  return 0
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
redis.call('XADD', KEYS[1], '*', 'task', ARGV[4])
return 1

-- Removes a consumer that goes away from the groups in which it has nothing pending: removing it
-- with something pending would destroy that.
-- KEYS: streams…. ARGV: group, consumer. Returns in how many groups it stays.
local stays = 0
for _, key in ipairs(KEYS) do
  local pending = redis.pcall('XPENDING', key, ARGV[1], '-', '+', 1, ARGV[2])
  if not pending.err then
    if pending[1] then
      stays = stays + 1
    else
      redis.call('XGROUP', 'DELCONSUMER', key, ARGV[1], ARGV[2])
    end
  end
end
return stays

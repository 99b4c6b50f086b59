-- Takes over hints that nobody finished for a while. Being idle proves nothing (a long job is idle,
-- too): the claim in the database decides, and a refused claim just drops the hint.
-- The caller's own hints count only if it has lost track of them.
-- KEYS: streams…. ARGV: group, consumer, idle ms, at most, then the caller's entries in hand.
-- Returns as take.lua.
local found = {0}
local left = tonumber(ARGV[4])
local held = {}
for i = 5, #ARGV do
  held[ARGV[i]] = true
end
for index, key in ipairs(KEYS) do
  local from = '-'
  for _ = 1, 10 do
    local page = redis.pcall('XPENDING', key, ARGV[1], 'IDLE', ARGV[3], from, '+', 100)
    if page.err or #page == 0 then
      break
    end
    for _, pending in ipairs(page) do
      from = '(' .. pending[1]
      if left > 0 and not (pending[2] == ARGV[2] and held[pending[1]]) then
        local claimed = redis.call('XCLAIM', key, ARGV[1], ARGV[2], ARGV[3], pending[1])
        for _, entry in ipairs(claimed) do
          if entry then
            found[#found + 1] = index - 1
            found[#found + 1] = entry[1]
            found[#found + 1] = entry[2][2]
            left = left - 1
          end
        end
      end
    end
    if left <= 0 then
      return found
    end
  end
end
return found

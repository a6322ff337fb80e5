-- Give a hold back, or take it away: the one of that very token, whichever of the slots from the first to the last has it.
-- ARGV: key, token, the first slot, the last, keep in µs, the state and the token to be remembered if not its own
-- Answers: 1, or 0: there was none
-- Nothing keeps a hold from being given back: not a server out of memory, and not an index of the wrong type

for slot = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local name, member = name_of(slot), member_of(slot)
  local record, alien = read(name)
  if alien then
    return alien
  elseif record and token_of(record) == ARGV[2] then
    local mark = mark_of(record)
    local now = (ARGV[5] or mark ~= '') and clock()
    if ARGV[5] then -- an empty record, whoever waits
      local state = ARGV[6] or state_of(record) == 'b' and 'r' or state_of(record)
      local empty = compose(state, fence_of(record), '-' .. (ARGV[7] or ARGV[2]), '', '')
      redis.pcall('ZREM', bucket, member)
      redis.call('SET', name, empty, 'PXAT', math.ceil((now + ARGV[5]) / 1000))
    elseif mark ~= '' and tonumber(mark) > now then -- a baton: a hold of one second, for whoever has waited longest
      local fence, ends, list = next_fence(now, record), math.ceil(now / 1000) + 1000, bucket .. 'w:' .. key
      local baton = compose('b', whole(fence), 'baton/' .. whole(fence), mark, ' ' .. whole(ends))
      redis.call('PEXPIREAT', name, ends) -- first: see `renew.lua`
      redis.call('ZADD', bucket, ends, member, -fence, '')
      redis.call('SET', name, baton, 'PXAT', ends)
      redis.call('RPUSH', list, entry_of(slot, baton))
      redis.call('PEXPIREAT', list, ends)
    else
      redis.pcall('ZREM', bucket, member)
      redis.call('DEL', name)
    end
    unlay(slot, record)
    return 1
  end
end
return 0

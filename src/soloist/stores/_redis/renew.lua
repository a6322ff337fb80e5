-- Let a hold end later. No end comes nearer, but by a renewal that sets `kept`; one without a state leaves a `kept` hold alone.
-- ARGV: key, token, slot, ttl in µs, the new state or '', '1' if there is new info, the new info
-- Answers: {1, now, fence, slot, ms left or -1: as asked}          {0, now, slot, ms left, record} another's
--          {2, now, the empty record or nothing} gone

local token, slot, ttl, state = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local name, now = name_of(slot), clock()
local record, alien = read(name)
if alien then
  return alien
elseif not record or is_empty(record) then
  return {2, now, record}
end
local left, fence, before = redis.call('PTTL', name), fence_of(record), state_of(record)
if token_of(record) ~= token then
  return {0, now, slot, left, record}
elseif before == 'k' and state == '' then
  return {1, now, fence, slot, left}
end

local longer = state == 'k' or ttl > left * 1000
local ends = longer and math.ceil((now + ttl) / 1000) or math.ceil(now / 1000) + left
redis.call('PEXPIREAT', name, ends) -- first: a server that is out of memory allows it, and with it what the script writes after it
if redis.pcall('ZADD', bucket, ends, member_of(slot)) == 1 then -- the index was lost, and the counter with it
  redis.call('ZADD', bucket, 'LT', -fence, '')
end
if state ~= '' or ARGV[6] == '1' or before == 'b' then
  local info = ARGV[6] == '1' and ARGV[7] or before ~= 'b' and info_of(record) or ''
  state = state ~= '' and state or before == 'b' and 'r' or before
  redis.call('SET', name, compose(state, fence, token, mark_of(record), info), 'PXAT', ends)
  unlay(slot, record)
end
return {1, now, fence, slot, longer and -1 or left}

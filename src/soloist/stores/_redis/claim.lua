-- Ask for a hold. Every slot is read before anything is written.
-- ARGV: key, token, ttl in µs, state, info, not_after in µs or '', slots, '1' if the caller will wait, the expected token
-- Answers: an integer: granted as asked in slot 0; it is the fence and the time in µs
--          {1, now, fence, slot, ms left or -1: as asked, what the vacancy remembered} granted
--          {0, now, slot, ms left, record, …} busy, and who holds it
--          {2, now, the empty record} gone          {3, now} late

local token, slots, expect, now = ARGV[2], tonumber(ARGV[7] or 1), ARGV[9], clock()
if ARGV[6] ~= '' and now > tonumber(ARGV[6]) then
  return {3, now}
end

local records, vacant, expected, kin, memory = {}, nil, nil, false, nil
for slot = 0, slots - 1 do
  local name = name_of(slot)
  local record, alien = read(name)
  if alien then
    return alien
  elseif not record then
    vacant = vacant or slot
  else
    local holder, empty = token_of(record), is_empty(record)
    if holder == token then
      return {1, now, fence_of(record), slot, redis.call('PTTL', name)}
    elseif holder == expect then
      expected = expected or slot
    end
    if lies(slot, record, key) or empty and (not expect or holder == '-' .. expect) then
      vacant = vacant or slot
    elseif empty then
      memory = record
    elseif slots > 1 and owner(holder) == owner(token) then
      kin = true
    end
    records[slot] = record
  end
end

local slot = expected or not kin and vacant
if slot then
  local before, last = records[slot], nil
  local fence, ends = next_fence(now, before), math.ceil((now + ARGV[3]) / 1000)
  local record = compose(ARGV[4], whole(fence), token, before and mark_of(before) or '', ARGV[5])
  redis.call('SET', name_of(slot), record, 'PXAT', ends)
  redis.call('ZADD', bucket, ends, member_of(slot), -fence, '')
  if before then
    unlay(slot, before)
    last = is_empty(before) and before or nil
  end
  if now % 16 == 0 then
    sweep(now)
  end
  if fence == now and slot == 0 and not last then
    return now
  end
  return {1, now, fence, slot, -1, last}
elseif memory and not kin then
  return {2, now, memory}
end

local busy, mark = {0, now}, ARGV[8] == '1' and ' ' .. whole(now + 2500000)
for number = 0, slots - 1 do
  local record, at = records[number], #busy
  if record and not is_empty(record) then
    busy[at + 1], busy[at + 2], busy[at + 3] = number, redis.call('PTTL', name_of(number)), record
  end
  if record and mark then
    local marked = compose(state_of(record), fence_of(record), token_of(record), mark, info_of(record))
    redis.call('SET', name_of(number), marked, 'KEEPTTL')
  end
end
return busy

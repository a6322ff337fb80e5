-- Who holds the key now, slot by slot.
-- ARGV: key, slots
-- Answers: {slot, ms left, record, …}

local found = {}
for slot = 0, ARGV[2] - 1 do
  local name, at = name_of(slot), #found
  local record, alien = read(name)
  if alien then
    return alien
  elseif record and not is_empty(record) and not lies(slot, record, key) then
    found[at + 1], found[at + 2], found[at + 3] = slot, redis.call('PTTL', name), record
  end
end
return found

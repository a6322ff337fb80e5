-- The holds of one bucket whose key begins with a prefix, in the order of their members; what the index wrongly has is swept.
-- ARGV: prefix, the member to go on after or '', how many at most
-- Answers: {member, ms left, record, …}. What isn't a record is left out: it is no hold, and `look` names it

local prefix, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
sweep(clock())
local members, found = redis.call('ZRANGEBYSCORE', bucket, '(0', '+inf'), {}
table.sort(members)
for _, member in ipairs(members) do
  local colon, at = member:find(':', 1, true), #found
  if at == 3 * limit then
    break
  elseif member > after and member:sub(colon + 1, colon + #prefix) == prefix then
    local name = bucket .. (member:sub(1, 2) == '0:' and member:sub(2) or member)
    local record, alien = read(name)
    if alien and not alien.err:find('^%-?FOREIGN ') then
      return alien
    elseif alien then -- one damaged record doesn't hide the others
    elseif not record or is_empty(record) then
      redis.call('ZREM', bucket, member)
    elseif not lies(tonumber(member:sub(1, colon - 1)), record, member:sub(colon + 1)) then
      found[at + 1], found[at + 2], found[at + 3] = member, redis.call('PTTL', name), record
    end
  end
end
return found

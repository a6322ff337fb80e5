-- What a record is, and how it is read and written. Each script begins with the first lines of this file, and with those
-- of its functions that it uses: to make a function costs time in every call.
--
--   1 r 1763500800000123 fjord/1 {"host":"w1"}                      format, state, fence, token, info
--   1 R 1763500800000123 fjord/1 1763500802500123 {"host":"w1"}     in capitals: somebody waits, until then
--   1 q 1763500800000123 -fjord/1                                   empty: the token that it remembers
--   1 b 1763500800000123 baton/1763500800000123 1763500801001       a baton that nobody has renewed: its end in ms
--
-- A large number is never joined to a string with `..`, which would round it: it goes to redis.call as it is, exact below
-- 2^53, or through `whole`. Info and marks are handled with the space before them.
-- KEYS[1] is the bucket, `so:{b1}`: the index, and what every other name begins with. ARGV[1] is the user's key.

local bucket, key = KEYS[1], ARGV[1]

local function clock() -- in µs; it goes on within a script
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function whole(number)
  return string.format('%.0f', number)
end

local function name_of(slot)
  return slot == 0 and bucket .. ':' .. key or bucket .. whole(slot) .. ':' .. key
end

local function member_of(slot) -- in the index
  return slot == 0 and '0:' .. key or whole(slot) .. ':' .. key
end

local function read(name) -- the record, or nothing and why it can't be ours
  local record = redis.pcall('GET', name)
  if not record then
    return nil
  elseif type(record) == 'table' then
    return nil, record.err:find('WRONGTYPE', 1, true) and redis.error_reply('FOREIGN ' .. name) or record
  elseif not record:find('^1 [pqrkbPQRKB] %d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d %S') then
    return nil, redis.error_reply((record:find('^%d+ ') and record:sub(1, 2) ~= '1 ' and 'NEWER ' or 'FOREIGN ') .. name)
  end
  return record
end

local function state_of(record)
  return record:sub(3, 3):lower()
end

local function fence_of(record)
  return record:sub(5, 20)
end

local function token_of(record) -- of an empty record with a `-` before it
  return record:match('^%S+', 22)
end

local function is_empty(record)
  return record:sub(22, 22) == '-'
end

local function owner(token)
  return token:match('^(.*)/[^/]*/[^/]*$') or token:match('^(.*)/[^/]*$') or token
end

local function mark_of(record)
  return record:find('^%u', 3) and record:match('^%S+( %d+)', 22) or ''
end

local function info_of(record)
  return record:match(record:find('^%u', 3) and '^%S+ %d+(.*)' or '^%S+(.*)', 22) or ''
end

local function compose(state, fence, token, mark, info)
  return '1 ' .. (mark == '' and state or state:upper()) .. ' ' .. fence .. ' ' .. token .. mark .. info
end

local function next_fence(now, before) -- the counter is a score, kept negative: no sweep of ended members meets it
  local counter = -(redis.call('ZSCORE', bucket, '') or 0)
  return math.max(now, counter + 1, before and fence_of(before) + 1 or 0)
end

local function entry_of(slot, record) -- a baton as it lies in the list
  return whole(slot) .. ' ' .. fence_of(record) .. ' ' .. token_of(record) .. info_of(record)
end

local function lies(slot, record, whose) -- a baton that nobody took: whoever claims gets it
  return state_of(record) == 'b' and redis.call('LPOS', bucket .. 'w:' .. whose, entry_of(slot, record))
end

local function unlay(slot, record) -- take a baton out of the list, if it lies there
  if state_of(record) == 'b' then
    redis.call('LREM', bucket .. 'w:' .. key, 1, entry_of(slot, record))
  end
end

local function sweep(now) -- the members whose lease has run out
  redis.call('ZREMRANGEBYSCORE', bucket, '(0', '(' .. whole(math.floor(now / 1000)))
end

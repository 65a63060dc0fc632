-- The replicas have these writes of services: takes them off the list of those that wait for it, unless a newer write of
-- the same service stands there by now.
-- KEYS: events, meta, unconfirmed
-- ARGV: 'tell' | 'quiet' (the writer is told in his answer: tell only who waits for an earlier write), message, then name, id …
-- Reply: how many were on the list
local how, message = ARGV[1], ARGV[2]
local confirmed = 0
for i = 3, #ARGV, 2 do
  local name, id = ARGV[i], ARGV[i + 1]
  local note = redis.call('HGET', KEYS[3], name)
  if note and string.match(note, '^%S*') == id then
    redis.call('HDEL', KEYS[3], name)
    confirmed = confirmed + 1
    if how == 'tell' or string.match(note, ' 1$') then
      emit('service', name, 'WriteConfirmed', name, '', '', message)
    end
  end
end
return confirmed

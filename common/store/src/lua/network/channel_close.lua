-- Ends a connection to a pod for one side: deletes its record, and what this side has not read. What it has
-- written last is left to the other side, and expires.
-- Whichever side closes first records the event.
-- Reply: 'OK' | 'CLOSED' (the other side was first, or the record has expired)
local record, unread = head_keys()
local uuid, message = head_args()
local word, name, node, is_quiet = unpack(redis.call('HMGET', record, 'word', 'name', 'node', 'is_quiet'), 1, 4)
redis.call('DEL', unread)
if not word then return 'CLOSED' end
redis.call('DEL', record)
if is_quiet ~= '1' then
  emit('pod', uuid, word .. 'Ended', name, node, '', message)
end
return 'OK'

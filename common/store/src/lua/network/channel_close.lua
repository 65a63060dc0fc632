-- Deletes the record of a channel and this side's unread frames. Frames for the other side expire. The side
-- that closes first records the event.
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

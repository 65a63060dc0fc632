-- Says once that a drained node has no pods any more, or that the time of its drain is over.
-- Reply: 'OK' | 'SAME' (another order, or it was said)
local node_key = head_keys()
local node, id, reason, message = head_args()
local current, said = unpack(redis.call('HMGET', node_key, 'drain', 'drain_said'), 1, 2)
if not current or not string.find(current, '"id":"' .. id .. '"', 1, true) then return 'SAME' end
if said == id .. ' ' .. reason then return 'SAME' end
redis.call('HSET', node_key, 'drain_said', id .. ' ' .. reason)
emit('node', node, reason, node, node, '', message)
return 'OK'

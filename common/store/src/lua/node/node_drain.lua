-- Orders a node to be drained: it is cordoned, and schedulers move its pods to others. Another order
-- replaces it, unless neither has a deadline.
-- Reply: 'OK' | 'MISSING'
local node_key = head_keys()
-- The time is in milliseconds from now, '' for no deadline.
local node, id, deadline_ms, stop_bound, message = head_args()
local state, current = unpack(redis.call('HMGET', node_key, 'state', 'drain'), 1, 2)
if not state then return 'MISSING' end
local is_known = current and string.find(current, '"id":"' .. id .. '"', 1, true)
local waits_already = current and deadline_ms == '' and not string.find(current, '"deadline"', 1, true)
if is_known or waits_already then return 'OK' end
local deadline = ''
if deadline_ms ~= '' then deadline = string.format(',"deadline":%.0f', NOW + tonumber(deadline_ms)) end
redis.call('HSET', node_key, 'cordoned', '1', 'drain', string.format('{"id":"%s","at":%s%s,"stop_bound":%s}',
  id, STAMP, deadline, stop_bound == '1' and 'true' or 'false'))
emit('node', node, 'NodeDraining', node, node, '', message)
redis.call('PUBLISH', 'wake:moves', node)
return 'OK'

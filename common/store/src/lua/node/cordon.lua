-- Allows or forbids placing new pods on a node. Either ends its drain: the pods that are there stay.
-- Reply: 'OK' | 'MISSING'
local node_key = head_keys()
local node, cordoned = head_args()
local state, current = unpack(redis.call('HMGET', node_key, 'state', 'cordoned'), 1, 2)
if not state then return 'MISSING' end
if redis.call('HDEL', node_key, 'drain', 'drain_said') > 0 then
  redis.call('PUBLISH', 'wake:reconcile', '')
end
if (current or '0') ~= cordoned then
  redis.call('HSET', node_key, 'cordoned', cordoned)
  local on = cordoned == '1'
  emit('node', node, on and 'NodeCordoned' or 'NodeUncordoned', node, node, '',
    on and 'no new pods are placed here' or 'pods may be placed here again')
  wake_schedulers()
  redis.call('PUBLISH', 'wake:reconcile', 'node ' .. node)
end
return 'OK'

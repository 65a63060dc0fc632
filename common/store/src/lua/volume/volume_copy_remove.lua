-- Removes a copy of a persistent volume that is not the volume.
-- Reply: 'REMOVING' (its node was asked to) | 'OK' (its node is not in the cluster: the copy is forgotten)
--        | 'MISSING' (the node has no such copy)
local copies, removals, node_key = head_keys()
local name, service, node = head_args()
local field = name .. ' ' .. node
local is_known = redis.call('HEXISTS', copies, field) == 1
redis.call('SCARD', removals)
local node_state = redis.call('HGET', node_key, 'state')
if not is_known then return 'MISSING' end
if not node_state then
  redis.call('HDEL', copies, field)
  return 'OK'
end
if redis.call('SADD', removals, name) == 0 then return 'REMOVING' end
emit('service', service, 'VolumeRemoving', service, node, '', 'the copy of volume ' .. name .. ' on ' .. node
  .. ' is to be removed')
redis.call('PUBLISH', 'wake:' .. node, 'volumes')
return 'REMOVING'

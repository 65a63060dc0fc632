-- Removes a persistent volume: its node's worker is asked to remove the data, and then the record goes.
-- Reply: 'REMOVING' (also if it was before) | 'OK' (its node is none any more: the record is gone)
--        | 'MISSING' | 'USED' (a pod of its service uses it, or is about to)
--        | 'CHANGED' (its record names another node than `node`: read it again)
local volume_key, volumes, removals, node_key, slots = head_keys()
-- `is_mounted`: its service has it, and is not being deleted. `is_wanted`: and has this replica. `is_forced`: the
-- service is being deleted, with its volumes.
local name, node, service, replica, is_mounted, is_wanted, is_forced = head_args()
local holder, state = unpack(redis.call('HMGET', volume_key, 'node', 'state'), 1, 2)
local is_held = redis.call('HEXISTS', slots, replica) == 1
redis.call('SCARD', volumes)
redis.call('SCARD', removals)
local node_state = redis.call('HGET', node_key, 'state')
if not holder then return 'MISSING' end
if holder ~= node then return 'CHANGED' end
if is_forced ~= '1' and (is_wanted == '1' or (is_mounted == '1' and is_held)) then return 'USED' end
if not node_state then
  redis.call('SREM', removals, name)
  redis.call('SREM', volumes, name)
  redis.call('DEL', volume_key)
  emit('service', service, 'VolumeRemoved', service, '', '',
    'volume ' .. name .. ' was forgotten: its node ' .. node .. ' is not in the cluster')
  redis.call('PUBLISH', 'wake:scheduler', 'capacity')
  return 'OK'
end
if state ~= 'removing' then
  redis.call('HSET', volume_key, 'state', 'removing')
  emit('service', service, 'VolumeRemoving', service, node, '', 'volume ' .. name .. ' is to be removed')
end
redis.call('SADD', removals, name)
redis.call('PUBLISH', 'wake:' .. node, 'volumes')
return 'REMOVING'

-- Removes a persistent or shared volume: first a worker removes the data, then the record goes.
-- Reply: 'REMOVING' (also if it was before)
--        | 'OK' (its node is none any more, or its data is lost: the record is gone)
--        | 'MISSING' | 'USED' (a pod of its services uses it, or is about to)
--        | 'CHANGED' (its record names another node than `former_node`, or `node` is none: read again)
local volume_key, volumes, removals, former_removals, node_key, given_up, problems = head_keys()
-- `node` removes the data. `former_node` is the one in the record: the same, or for a shared volume the one
-- asked before, or ''. `is_mounted`: a service that is not being deleted has it; `is_wanted`: and has this
-- replica. `is_forced`: the service is being deleted with its volumes.
local name, node, former_node, service, replica, is_mounted, is_wanted, is_forced = head_args()
local holder, state, lost, epoch = unpack(redis.call('HMGET', volume_key, 'node', 'state', 'lost', 'epoch'), 1, 4)
local is_shared = not tonumber(replica)
local is_held = false
for u = 1, user_count do
  local slots = user_keys(u)
  -- '' if all replicas have it.
  local slot = user_args(u)
  if slot == '' then
    is_held = is_held or redis.call('HLEN', slots) > 0
  else
    is_held = is_held or redis.call('HEXISTS', slots, slot) == 1
  end
end
redis.call('SCARD', volumes)
redis.call('SCARD', removals)
redis.call('SCARD', former_removals)
redis.call('ZCARD', given_up)
redis.call('SCARD', problems)
local node_state = redis.call('HGET', node_key, 'state')
if not holder and not state then return 'MISSING' end
if (holder or '') ~= former_node or (is_shared and not node_state) then return 'CHANGED' end
-- If the data is lost, the pod waits for this.
if not lost and is_forced ~= '1' and (is_wanted == '1' or (is_mounted == '1' and is_held)) then return 'USED' end
if not node_state or lost then
  redis.call('SREM', removals, name)
  redis.call('SREM', volumes, name)
  redis.call('SREM', problems, name)
  redis.call('DEL', volume_key)
  -- The data may come back with its machine; it must not replace a new volume.
  if not is_shared then note_given_up(given_up, name, epoch) end
  emit('service', service, 'VolumeRemoved', service, '', '', 'volume ' .. name .. ' was forgotten: '
    .. (lost and 'its data is lost' or 'its node ' .. node .. ' is not in the cluster'))
  wake_schedulers()
  return 'OK'
end
if state ~= 'removing' then
  redis.call('HSET', volume_key, 'state', 'removing')
  emit('service', service, 'VolumeRemoving', service, node, '', 'volume ' .. name .. ' is to be removed')
end
if holder ~= node then
  redis.call('HSET', volume_key, 'node', node)
  redis.call('SREM', former_removals, name)
end
redis.call('SADD', removals, name)
redis.call('PUBLISH', 'wake:' .. node, 'volumes')
return 'REMOVING'

-- Records which persistent volumes a node has, and answers which it is to remove.
-- Reply: {'FENCED'} | {'OK', names of volumes to remove, names of volumes whose record names another node}
--   A volume without a record gets one: Redis has lost it, and its data is here. A worker that dies before it reads
--   the reply asks again. It reports a volume as removed once its engine has no such volume.
local node_key, volumes, removals = head_keys()
local node, incarnation = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
redis.call('SCARD', volumes)
local records = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  records[v] = redis.call('HMGET', volume_key, 'node', 'state')
end
-- What this node was asked to remove, and no longer has, is reported with `removed`.
redis.call('SCARD', removals)

local elsewhere, has_removed = {}, false
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, removed = volume_args(v)
  local holder, state = unpack(records[v], 1, 2)
  if removed == '1' then
    redis.call('SREM', removals, name)
    if holder == node and state == 'removing' then
      redis.call('DEL', volume_key)
      redis.call('SREM', volumes, name)
      emit('service', service, 'VolumeRemoved', service, node, '', 'volume ' .. name .. ' was removed')
      has_removed = true
    end
  elseif not holder then
    redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
      'node', node, 'space', space, 'state', 'bound', 'created_at', STAMP)
    redis.call('SADD', volumes, name)
  elseif holder ~= node then
    elsewhere[#elsewhere + 1] = name
  end
end
-- A pod may wait for a volume of this name that has no data.
if has_removed then redis.call('PUBLISH', 'wake:scheduler', 'capacity') end
return { 'OK', redis.call('SMEMBERS', removals), elsewhere }

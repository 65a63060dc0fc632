-- Records the sizes of a node's volumes, and which exceed their space.
-- Reply: 'FENCED'
--        | 'OK'. A worker that dies before it reads the reply measures again; the same sizes change nothing.
local node_key = head_keys()
local node, incarnation, _ = head_args()
if is_fenced(node_key, incarnation) then return 'FENCED' end
local records = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  records[v] = redis.call('HMGET', volume_key, 'state', 'service', 'over')
end
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  local name, used, over = volume_args(v)
  local state, service, over_before = unpack(records[v], 1, 3)
  if state then
    redis.call('HSET', volume_key, 'used', used)
    if over == '' then
      redis.call('HDEL', volume_key, 'over')
      if over_before then
        emit('service', service, 'VolumeWithinSpace', service, node, '', 'volume ' .. name
          .. ' holds no more than its space again')
      end
    else
      redis.call('HSET', volume_key, 'over', over)
      if not over_before then emit('service', service, 'VolumeExceedsSpace', service, node, '', over) end
    end
  end
end
-- Local volumes have no record: the worker remembers which it has noted.
for e = 1, excess_count do
  local pod_key = excess_keys(e)
  local uuid, over = excess_args(e)
  local name, phase = unpack(redis.call('HMGET', pod_key, 'name', 'phase'), 1, 2)
  if name then emit('pod', uuid, 'VolumeExceedsSpace', name, node, phase, over) end
end
return 'OK'

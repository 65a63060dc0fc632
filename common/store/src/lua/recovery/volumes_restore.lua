-- Records volumes of a backup, unless they have a record. No pod gets one before its node has reported.
-- Reply: for each volume 'restored' | 'present'
local volumes, given_up = head_keys()
redis.call('SCARD', volumes)
redis.call('ZCARD', given_up)
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  redis.call('HLEN', volume_key)
end

local replies = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, node, engine_id, epoch, found, given_up_at = volume_args(v)
  if redis.call('EXISTS', volume_key) == 1 then
    replies[v] = 'present'
  else
    redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
      'node', node, 'engine_id', engine_id, 'space', space, 'state', 'bound', 'created_at', STAMP, 'restored', 1)
    if epoch ~= '' then redis.call('HSET', volume_key, 'epoch', epoch) end
    if found == '1' then redis.call('HSET', volume_key, 'found', 1) end
    if given_up_at ~= '' then redis.call('ZADD', given_up, 'GT', given_up_at, name) end
    redis.call('SADD', volumes, name)
    replies[v] = 'restored'
  end
end
return replies

-- Records volumes as a backup has them, unless they have a record. Their nodes say later what is so: until
-- then no pod gets one of them.
-- Reply: for each volume 'restored' | 'present'
local volumes = head_keys()
redis.call('SCARD', volumes)
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  redis.call('HLEN', volume_key)
end

local replies = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, node, engine_id = volume_args(v)
  if redis.call('EXISTS', volume_key) == 1 then
    replies[v] = 'present'
  else
    redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
      'node', node, 'engine_id', engine_id, 'space', space, 'state', 'bound', 'created_at', STAMP, 'restored', 1)
    redis.call('SADD', volumes, name)
    replies[v] = 'restored'
  end
end
return replies

-- Deletes a secret or config with all versions. Running containers keep their files.
-- Reply: 'OK' | 'MISSING'
local value_key, names, rollouts = head_keys()
local kind, name = head_args()
local current = redis.call('HGET', value_key, 'current')
local is_listed = redis.call('SISMEMBER', names, name) == 1
redis.call('HLEN', rollouts)
if not current and not is_listed then return 'MISSING' end
redis.call('DEL', value_key)
redis.call('SREM', names, name)
redis.call('HDEL', rollouts, string.lower(kind) .. '/' .. name)
emit('cluster', string.lower(kind) .. '/' .. name, kind .. 'Deleted', '', '', '', 'it was deleted')
return 'OK'

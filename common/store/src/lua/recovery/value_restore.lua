-- Stores a backup's version of a secret or config, if there is none of this name.
-- Reply: 'OK' | 'PRESENT'
local value_key, names = head_keys()
-- `kind` is 'Secret' or 'Config'; `value` is as stored, so a secret's is encrypted; `app` may be ''.
local kind, name, version, value, created_at, updated_at, app = head_args()
local current = redis.call('HGET', value_key, 'current')
redis.call('SCARD', names)
if current then return 'PRESENT' end
redis.call('HSET', value_key, 'current', version, 'v:' .. version, value, 'created_at', created_at,
  'updated_at', updated_at)
if app ~= '' then redis.call('HSET', value_key, 'app', app) end
redis.call('SADD', names, name)
emit('cluster', string.lower(kind) .. '/' .. name, kind .. 'Restored', '', '', '',
  'version ' .. version .. ' was restored from a backup')
return 'OK'

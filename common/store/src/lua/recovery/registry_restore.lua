-- Stores a backup's user and password for a registry, if there are none.
-- Reply: 'OK' | 'PRESENT'
local registry_key, registries = head_keys()
local host, user, password, updated_at = head_args()
local current = redis.call('HGET', registry_key, 'password')
redis.call('SCARD', registries)
if current then return 'PRESENT' end
redis.call('HSET', registry_key, 'user', user, 'password', password, 'updated_at', updated_at)
redis.call('SADD', registries, host)
emit('cluster', 'registry/' .. host, 'RegistryRestored', '', '', '', 'it was restored from a backup')
return 'OK'

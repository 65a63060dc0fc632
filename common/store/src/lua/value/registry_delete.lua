-- Deletes the login for a registry.
-- Reply: 'OK' | 'MISSING'
local registry_key, registries = head_keys()
local host = head_args()
local is_stored = redis.call('EXISTS', registry_key) == 1
local is_listed = redis.call('SISMEMBER', registries, host) == 1
if not is_stored and not is_listed then return 'MISSING' end
redis.call('DEL', registry_key)
redis.call('SREM', registries, host)
emit('cluster', 'registry/' .. host, 'RegistryLogout', '', '', '', 'its user and password were deleted')
return 'OK'

-- Stores the user and password for a registry.
-- Reply: {'OK'} | {'FULL', number of registries}
local registry_key, registries = head_keys()
-- `password` is encrypted.
local host, user, password, max_count = head_args()
local current = redis.call('HGET', registry_key, 'password')
-- A record without a password is broken, not new: it can be repaired at the limit.
local is_new = redis.call('EXISTS', registry_key) == 0 and redis.call('SISMEMBER', registries, host) == 0
local count = redis.call('SCARD', registries)

if current == password then return { 'OK' } end
if is_new and count >= tonumber(max_count) then return { 'FULL', count } end

redis.call('HSET', registry_key, 'user', user, 'password', password, 'updated_at', STAMP)
redis.call('SADD', registries, host)
emit('cluster', 'registry/' .. host, 'RegistryLogin', '', '', '', 'images are pulled as ' .. user)
return { 'OK' }

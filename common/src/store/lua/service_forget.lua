-- Forgets a deleted service once no slot of it is taken.
-- Reply: 'OK' | 'WANTED' (it is not being deleted) | 'BUSY' (it still has pods)
-- `spec_key` is the specification of its last generation.
local service_key, services, slots, spec_key = head_keys()
local service = head_args()
local state = redis.call('HGET', service_key, 'state')
local taken = redis.call('HLEN', slots)
redis.call('SCARD', services)
if not state then return 'OK' end
if state ~= 'deleting' then return 'WANTED' end
if taken > 0 then return 'BUSY' end
redis.call('DEL', service_key)
redis.call('SREM', services, service)
redis.call('EXPIRE', spec_key, TOMBSTONE_SECONDS)
emit('service', service, 'ServiceGone', service, '', '', 'its last pod is gone')
return 'OK'

-- Forgets a deleted service once no slot of it is taken.
-- KEYS: events, meta, service:<name>, services, slots:<name>, spec:<id> of its last generation
-- ARGV: name
-- Reply: 'OK' | 'WANTED' (it is not being deleted) | 'BUSY' (pods of it are left)
local state = redis.call('HGET', KEYS[3], 'state')
local taken = redis.call('HLEN', KEYS[5])
redis.call('SCARD', KEYS[4])
if not state then return 'OK' end
if state ~= 'deleting' then return 'WANTED' end
if taken > 0 then return 'BUSY' end
redis.call('DEL', KEYS[3])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('EXPIRE', KEYS[6], TOMBSTONE_SECONDS)
emit('service', ARGV[1], 'ServiceGone', ARGV[1], '', '', 'its last pod is gone')
return 'OK'

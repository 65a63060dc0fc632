-- Forgets a deleted service without pods.
-- Reply: 'OK' | 'WANTED' (it is not being deleted) | 'BUSY' (it still has pods, or a cron has jobs)
-- `spec_key` is the specification of its last generation.
local service_key, services, slots, spec_key, routes, relations, ep_key, history, done, tries, runs, runs_of_cron =
  head_keys()
local service = head_args()
local state, routes_text, related = unpack(redis.call('HMGET', service_key, 'state', 'routes', 'related'), 1, 3)
local taken = redis.call('HLEN', slots)
redis.call('SCARD', services)
if routes_text then redis.call('HLEN', routes) end
if related then redis.call('HLEN', relations) end
redis.call('ZCARD', runs_of_cron)
if not state then return 'OK' end
if state ~= 'deleting' then return 'WANTED' end
if taken > 0 or redis.call('ZCARD', runs) > 0 then return 'BUSY' end
redis.call('DEL', service_key)
if routes_text then write_routes(routes, services, service, routes_text, '') end
if related then write_relations(relations, service, related, '') end
redis.call('SREM', services, service)
-- A proxy that follows it makes `ep` again, empty. There may be 100,000 entries.
redis.call('UNLINK', ep_key, history, done, tries, runs)
redis.call('ZREM', runs_of_cron, service)
redis.call('EXPIRE', spec_key, TOMBSTONE_SECONDS)
emit('service', service, 'ServiceGone', service, '', '', 'its last pod is gone')
return 'OK'

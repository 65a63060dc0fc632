-- Forgets a deleted service once no slot of it is taken.
-- Reply: 'OK' | 'WANTED' (it is not being deleted) | 'BUSY' (it still has pods, or a cron has jobs)
-- `spec_key` is the specification of its last generation.
local service_key, services, slots, spec_key, routes, ep_key, addresses, freed, history, done, tries, runs,
  runs_of_cron = head_keys()
-- The number of addresses that there are at all.
local service, address_count = head_args()
local state, routes_text, slot_addresses = unpack(
  redis.call('HMGET', service_key, 'state', 'routes', 'slot_addresses'), 1, 3)
local taken = redis.call('HLEN', slots)
redis.call('SCARD', services)
if routes_text then redis.call('HLEN', routes) end
redis.call('HLEN', addresses)
redis.call('ZCARD', freed)
redis.call('ZCARD', runs_of_cron)
if not state then return 'OK' end
if state ~= 'deleting' then return 'WANTED' end
if taken > 0 or redis.call('ZCARD', runs) > 0 then return 'BUSY' end
-- No other name gets its address within an hour, see `address`.
local function free_address(name)
  local number = string.match(redis.call('HGET', addresses, name) or '', '^%d+')
  redis.call('HDEL', addresses, name)
  if number and redis.call('HGET', addresses, '#' .. number) == name then
    redis.call('HDEL', addresses, '#' .. number)
    redis.call('ZADD', freed, STAMP, number)
  end
end
free_address(service)
for slot = 0, math.min(bounded(slot_addresses), tonumber(address_count)) - 1 do
  free_address(string.format('%.0f', slot) .. '.' .. service)
end
redis.call('DEL', service_key)
if routes_text then write_routes(routes, services, service, routes_text, '') end
redis.call('SREM', services, service)
-- A proxy that still follows it makes it again, empty.
redis.call('DEL', ep_key)
redis.call('DEL', history, done, tries, runs)
redis.call('ZREM', runs_of_cron, service)
redis.call('EXPIRE', spec_key, TOMBSTONE_SECONDS)
emit('service', service, 'ServiceGone', service, '', '', 'its last pod is gone')
return 'OK'

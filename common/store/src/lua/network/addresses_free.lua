-- Frees addresses of services that are gone, of slots that are not wanted, and numbers without a name. They
-- stay unused for an hour, see `address`.
-- Reply: number of addresses that were freed
local addresses, freed = head_keys()
local _, slot_share, first, count = head_args()
first, count = tonumber(first), tonumber(count)
-- There may be as many entries as addresses, so each call handles a part.
local MAX_FORGOTTEN = 1000
redis.call('HLEN', addresses)
local forgotten = redis.call('ZRANGEBYSCORE', freed, '-inf', string.format('%.0f', NOW - ADDRESS_QUARANTINE_MS),
  'LIMIT', 0, MAX_FORGOTTEN)
local of_future = redis.call('ZRANGEBYSCORE', freed, '(' .. STAMP, '+inf', 'LIMIT', 0, MAX_FORGOTTEN)
local removed, numbers, freed_count = {}, {}, 0
for n = 1, name_count do
  local service_key = name_keys(n)
  local service, slot = name_args(n)
  -- A service whose record another program overwrote keeps its addresses.
  local is_readable, keeps_it = pcall(has_address, service_key, slot, slot_share)
  if is_readable and not keeps_it then
    local name = address_name(service, slot)
    local number = address_number(addresses, name, first, count)
    removed[#removed + 1] = name
    if number then numbers[#numbers + 1] = number end
    freed_count = freed_count + 1
  end
end
for n = 1, number_count do
  local number = number_args(n)
  local holder = redis.call('HGET', addresses, '#' .. number)
  if holder and address_number(addresses, holder, first, count) ~= number then numbers[#numbers + 1] = number end
end
for _, number in ipairs(numbers) do
  removed[#removed + 1] = '#' .. number
  redis.call('ZADD', freed, STAMP, number)
end
if #removed > 0 then redis.call('HDEL', addresses, unpack(removed)) end
if #forgotten > 0 then redis.call('ZREM', freed, unpack(forgotten)) end
-- Times of a former master whose clock was ahead: they count as now.
for _, number in ipairs(of_future) do redis.call('ZADD', freed, STAMP, number) end
return freed_count

-- Assigns a service or slot its number of the pool. The search begins at a place that follows from the name,
-- so most names get the same one after Redis lost everything.
-- Reply: {'OK', number, '1' if the replicas have it, else ''} | {'FULL'}
--        | {'MISSING'} (no such service, or a slot that has no address)
--
-- Field <name> of `addresses` has the number, with ` new` until the replicas have it; field #<number> has the
-- name. Both must agree: whatever is written by hand, no address has two names.
local service_key, addresses, freed = head_keys()
-- `slot` is '' for the service; slots from `slot_share` on have no address. `confirmed` is the number that
-- the replicas have, or ''. The pool has `count` numbers from `first` on.
local service, slot, confirmed, slot_share, first, count = head_args()
-- Numbers tried from the place of the name, and then from another one.
local FIRST_PROBES, FURTHER_PROBES = 16, 112
first, count = tonumber(first), tonumber(count)
local name = address_name(service, slot)
redis.call('ZCARD', freed)
local number, is_confirmed = address_number(addresses, name, first, count)
if not has_address(service_key, slot, slot_share) then return { 'MISSING' } end
if is_confirmed then return { 'OK', number, '1' } end
if number then
  local has_all = number == confirmed
  -- WAIT needs a write.
  redis.call('HSET', addresses, name, has_all and number or number .. ' new')
  return { 'OK', number, has_all and '1' or '' }
end

local function is_free(candidate)
  local since = redis.call('ZSCORE', freed, candidate)
  return not since or NOW - past(since) >= ADDRESS_QUARANTINE_MS
end
-- Bounded: a pod may ask for many names.
local function find_free(start, probes)
  local candidates, fields = {}, {}
  for probe = 1, math.min(probes, count) do
    candidates[probe] = string.format('%.0f', first + (start + probe - 1) % count)
    fields[probe] = '#' .. candidates[probe]
  end
  local holders = redis.call('HMGET', addresses, unpack(fields))
  for probe, candidate in ipairs(candidates) do
    local holder = holders[probe]
    if holder == name or not holder and is_free(candidate) then return candidate end
  end
end
local function place_of(text) return tonumber(string.sub(redis.sha1hex(text), 1, 8), 16) end
-- The second place differs each time, so that some calls find each free number.
number = find_free(place_of(name), FIRST_PROBES) or find_free(place_of(name .. STAMP), FURTHER_PROBES)
if not number then return { 'FULL' } end
redis.call('HSET', addresses, '#' .. number, name, name, number .. ' new')
return { 'OK', number, '' }

-- Gives a service, or one of its slots, its address: a number of the pool, the same one each time. Where the
-- search for one begins follows from the name, so that most names have the same address again after Redis
-- lost everything.
-- Reply: {'OK', number, '1' if the replicas have it, else ''} | {'MISSING'} (no such service or slot)
--        | {'FULL'}
--
-- Field <name> of `addresses` has the number, with ` new` after it until the replicas have it, and field
-- #<number> has the name. A name has an address only if both say so: whatever is written by hand, no address
-- has two names.
local service_key, addresses, freed = head_keys()
-- `slot` is '' for the service itself. `confirmed` is the number that the caller knows the replicas to have,
-- or ''. The pool has `count` numbers from `first` on.
local service, slot, confirmed, first, count = head_args()
local QUARANTINE_MS = 3600000
local MAX_PROBES = 1000
first, count = tonumber(first), tonumber(count)
local state, replicas, slot_addresses = unpack(
  redis.call('HMGET', service_key, 'state', 'replicas', 'slot_addresses'), 1, 3)
redis.call('ZCARD', freed)
local name = slot == '' and service or slot .. '.' .. service

local function number_of(one)
  local number, mark = string.match(redis.call('HGET', addresses, one) or '', '^(%d+)(.*)$')
  local value = tonumber(number)
  if not value or value < first or value >= first + count or number ~= string.format('%.0f', value) then return nil end
  if redis.call('HGET', addresses, '#' .. number) == one then return number, mark == '' end
end

local number, is_confirmed = number_of(name)
if not state or slot ~= '' and tonumber(slot) >= (tonumber(replicas) or 0) then return { 'MISSING' } end
if is_confirmed then return { 'OK', number, '1' } end
if number then
  local has_all = number == confirmed
  -- WAIT waits for a write, so there is one even if it changes nothing.
  redis.call('HSET', addresses, name, has_all and number or number .. ' new')
  return { 'OK', number, has_all and '1' or '' }
end

-- Numbers that no name has any more but that were not freed, and those whose time is in the future: freed
-- now.
local freed_now = {}
local function is_free(candidate)
  local holder = redis.call('HGET', addresses, '#' .. candidate)
  if holder == name then return true end
  if holder then
    if number_of(holder) ~= candidate then freed_now[#freed_now + 1] = candidate end
    return false
  end
  local since = redis.call('ZSCORE', freed, candidate)
  if not since then return true end
  if is_no_past(since) then freed_now[#freed_now + 1] = candidate end
  return NOW - past(since) >= QUARANTINE_MS
end
local start = tonumber(string.sub(redis.sha1hex(name), 1, 8), 16)
for step = 0, math.min(MAX_PROBES, count) - 1 do
  local candidate = string.format('%.0f', first + (start + step) % count)
  if is_free(candidate) then
    number = candidate
    break
  end
end
if not number then return { 'FULL' } end
-- First, because it grows: at `maxmemory` Redis refuses a script only at its first write.
redis.call('HSET', addresses, '#' .. number, name, name, number .. ' new')
for _, stale in ipairs(freed_now) do
  redis.call('HDEL', addresses, '#' .. stale)
  redis.call('ZADD', freed, STAMP, stale)
end
redis.call('ZREMRANGEBYSCORE', freed, '-inf', string.format('%.0f', NOW - QUARANTINE_MS))
-- `service_forget` looks for the addresses of this many slots.
if slot ~= '' and tonumber(slot) >= (tonumber(slot_addresses) or 0) then
  redis.call('HSET', service_key, 'slot_addresses', string.format('%.0f', tonumber(slot) + 1))
end
return { 'OK', number, '' }

-- Moves waiting pods into the in-flight list of a scheduler, oldest first, and notes that it is alive.
-- Reply: the payloads now in flight, oldest first, without the `known_count` oldest. A giant becomes a
--   dead letter.
local sq, in_flight, schedulers, dq = head_keys()
local scheduler, max_in_flight, known_count = head_args()
local length = redis.call('LLEN', in_flight)
redis.call('LLEN', sq)
redis.call('LLEN', dq)
redis.call('ZADD', schedulers, NOW, scheduler)
-- Entries in flight that the scheduler does not know: usually none.
local taken, count = {}, math.max(0, length - tonumber(known_count))
if count > 0 then
  local newest_first = redis.call('LRANGE', in_flight, 0, count - 1)
  for p = 1, count do taken[p] = newest_first[count + 1 - p] end
end
local missing = tonumber(max_in_flight) - length
while missing > 0 do
  -- In parts: unpack returns a limited number of values.
  local part = redis.call('RPOP', sq, math.min(missing, 1000))
  if not part then break end
  redis.call('LPUSH', in_flight, unpack(part))
  for p = 1, #part do taken[count + p] = part[p] end
  count, missing = count + #part, missing - #part
end
return without_giants(in_flight, dq, sq, taken)

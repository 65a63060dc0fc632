-- Moves waiting pods into the in-flight list of a scheduler, oldest first, and records that the scheduler is
-- alive.
-- Reply: the payloads now in flight, newest first, without the `known_count` oldest. A giant becomes a
--   dead letter.
local sq, in_flight, schedulers, dq = head_keys()
local scheduler, max_in_flight, known_count = head_args()
local length = redis.call('LLEN', in_flight)
redis.call('LLEN', sq)
redis.call('LLEN', dq)
redis.call('ZADD', schedulers, NOW, scheduler)
local missing = tonumber(max_in_flight) - length
while missing > 0 do
  -- In parts: the number of values that unpack can return is limited.
  local part = redis.call('RPOP', sq, math.min(missing, 1000))
  if not part then break end
  redis.call('LPUSH', in_flight, unpack(part))
  missing = missing - #part
end
return without_giants(in_flight, dq, sq, redis.call('LRANGE', in_flight, 0, -1 - tonumber(known_count)))

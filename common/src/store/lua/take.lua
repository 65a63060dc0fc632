-- Moves waiting pods into a scheduler's hands, oldest first, and shows that the scheduler lives.
-- KEYS: events, meta, sq, fq:<scheduler>, schedulers
-- ARGV: scheduler, how many at most in its hands, how many of those it has it knows already (the oldest)
-- Reply: the other payloads now in its hands, newest first
local in_hand = redis.call('LLEN', KEYS[4])
redis.call('LLEN', KEYS[3])
redis.call('ZADD', KEYS[5], NOW, ARGV[1])
local room = tonumber(ARGV[2]) - in_hand
while room > 0 do
  -- In parts: what unpack can hold is limited.
  local part = redis.call('RPOP', KEYS[3], math.min(room, 1000))
  if not part then break end
  redis.call('LPUSH', KEYS[4], unpack(part))
  room = room - #part
end
return redis.call('LRANGE', KEYS[4], 0, -1 - tonumber(ARGV[3]))

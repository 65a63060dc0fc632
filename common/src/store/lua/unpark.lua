-- Puts unschedulable pods back into the queue: those whose wait is over, or the longest waiting when room appeared.
-- KEYS: events, meta, sq, uq, uq:at, uq:why
-- ARGV: 'due' | 'all', how many at most
-- Reply: how many were queued
local LONGEST_WAIT = 60000
redis.call('LLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('HLEN', KEYS[6])
local before = ARGV[1] == 'all' and '+inf' or NOW
local uuids = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', before, 'LIMIT', 0, ARGV[2])
if #uuids == 0 then
  -- Nobody waits for longer than a minute: whoever seems to was parked by a clock that was ahead of this one.
  uuids = redis.call('ZRANGEBYSCORE', KEYS[5], NOW + 2 * LONGEST_WAIT, '+inf', 'LIMIT', 0, ARGV[2])
end
local queued = 0
for _, uuid in ipairs(uuids) do
  local payload = redis.call('HGET', KEYS[4], uuid)
  redis.call('HDEL', KEYS[4], uuid)
  redis.call('HDEL', KEYS[6], uuid)
  redis.call('ZREM', KEYS[5], uuid)
  if payload then
    redis.call('LPUSH', KEYS[3], payload)
    queued = queued + 1
  end
end
return queued

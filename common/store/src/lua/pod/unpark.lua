-- Returns unschedulable pods to sq: those that are due, or when capacity appeared those that wait longest.
-- Reply: number of pods that were queued
local MAX_WAIT_MS = 60000
local sq, uq, uq_at, uq_why = head_keys()
local which, max_count = head_args()
redis.call('LLEN', sq)
redis.call('HLEN', uq)
redis.call('HLEN', uq_why)
local until_ms = which == 'all' and '+inf' or NOW
local uuids = redis.call('ZRANGEBYSCORE', uq_at, '-inf', until_ms, 'LIMIT', 0, max_count)
if which == 'due' then
  -- No wait is longer than MAX_WAIT_MS: a later time is of a former master whose clock was ahead. Those pods
  -- must not wait until no other is due.
  local left = tonumber(max_count) - #uuids
  local future = redis.call('ZRANGEBYSCORE', uq_at, NOW + 2 * MAX_WAIT_MS, '+inf', 'LIMIT', 0, left)
  for _, uuid in ipairs(future) do uuids[#uuids + 1] = uuid end
end
local queued = 0
for _, uuid in ipairs(uuids) do
  local payload = redis.call('HGET', uq, uuid)
  redis.call('HDEL', uq, uuid)
  redis.call('HDEL', uq_why, uuid)
  redis.call('ZREM', uq_at, uuid)
  if payload then
    redis.call('LPUSH', sq, payload)
    queued = queued + 1
  end
end
return queued

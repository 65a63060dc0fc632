-- Records pods that fit no node, with their reasons, out of the scheduler's hands. Invariant 2.
-- KEYS: events, meta, fq:<scheduler>, uq, uq:at, uq:why, pushed, then pod:<uuid> for each
-- ARGV: (uuid, payload, reasons, message, name, image, replica, cpu, memory, belongs to a service 0|1) for each
-- Reply: for each 'ok' | 'stale' (nobody waits for it: dropped) | 'gone' (not in this scheduler's hands any more)
--        | 'orphan' (its service does not know it: still in the scheduler's hands, reject it)
local FIELDS, FIRST_WAIT, LONGEST_WAIT = 10, 1000, 60000
local count = #KEYS - 7
local pods = {}
redis.call('LLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
redis.call('SCARD', KEYS[7])
for p = 1, count do pods[p] = redis.call('HMGET', KEYS[7 + p], 'phase', 'reason', 'attempts', 'message') end

local replies = {}
for p = 1, count do
  local at = (p - 1) * FIELDS
  local uuid, payload, why, message, name, image, replica, cpu, memory, serviced = unpack(ARGV, at + 1, at + FIELDS)
  local phase, reason, attempts, said = unpack(pods[p], 1, 4)
  if not phase and serviced == '1' then
    replies[p] = 'orphan'
  elseif redis.call('LREM', KEYS[3], -1, payload) == 0 then
    replies[p] = 'gone'
  elseif phase and phase ~= 'pending' then
    replies[p] = 'stale'
  else
    local tries = (reason == 'Unschedulable' and tonumber(attempts) or 0) + 1
    if not phase then
      redis.call('HSET', KEYS[7 + p], 'name', name, 'replica', replica, 'image', image, 'generation', 0, 'cpu', cpu,
        'memory', memory, 'created_at', STAMP, 'since', STAMP, 'payload', payload)
      redis.call('SADD', KEYS[7], uuid)
    end
    redis.call('HSET', KEYS[7 + p], 'phase', 'pending', 'reason', 'Unschedulable', 'message', message, 'attempts', tries)
    redis.call('HSET', KEYS[4], uuid, payload)
    redis.call('HSET', KEYS[6], uuid, why)
    redis.call('ZADD', KEYS[5], NOW + math.min(LONGEST_WAIT, FIRST_WAIT * 2 ^ math.min(tries - 1, 10)), uuid)
    if reason ~= 'Unschedulable' or said ~= message then
      emit('pod', uuid, 'Unschedulable', name, '', 'pending', message)
    end
    replies[p] = 'ok'
  end
end
return replies

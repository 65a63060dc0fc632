-- Heals a pod whose payload is in none of the places its phase allows (an event lost in a failover).
-- Does nothing unless it is really missing, so that it may be called on suspicion.
-- KEYS: events, meta, pod:<uuid>, slots:<service> or pushed, sq, uq, node:<n>, pq:<n>, rq:<n>, cs:<n>, stop:<n>,
--       schedulers, then every scheduler's in-flight list (<n> is the node the pod was seen on; any name when there is none)
-- ARGV: uuid, payload, phase seen, node seen or '', then every scheduler
-- Reply: 'QUEUED' | 'PRESENT' | 'CHANGED' (it is somewhere else by now, or there are other schedulers: reread)
local uuid, payload, seen_phase, seen_node = unpack(ARGV, 1, 4)
local pod = redis.call('HMGET', KEYS[3], 'phase', 'node', 'name', 'service', 'replica', 'cpu', 'memory')
local phase, node, name = pod[1], pod[2] or '', pod[3]
look_at_wanted(KEYS[4])
if phase ~= seen_phase or node ~= seen_node then return 'CHANGED' end

local function queued_in(key)
  return redis.call('LPOS', key, payload) and true or false
end
local function say(now_in, message)
  emit('pod', uuid, 'PodRequeued', name, node, now_in, message)
end

if phase == 'pending' then
  if redis.call('HEXISTS', KEYS[6], uuid) == 1 or queued_in(KEYS[5]) then return 'PRESENT' end
  for i = 13, #KEYS do
    if queued_in(KEYS[i]) then return 'PRESENT' end
  end
  -- It may be in the hands of a scheduler that began after the caller asked who there is.
  local asked = {}
  for i = 5, #ARGV do asked[ARGV[i]] = true end
  for _, scheduler in ipairs(redis.call('ZRANGE', KEYS[12], 0, -1)) do
    if not asked[scheduler] then return 'CHANGED' end
  end
  redis.call('LPUSH', KEYS[5], payload)
  say('pending', 'its payload was missing from the queues and has been put back')
  return 'QUEUED'
end
if phase ~= 'assigned' and phase ~= 'running' and phase ~= 'stopping' then return 'CHANGED' end

local in_set = redis.call('SISMEMBER', KEYS[10], payload) == 1
if in_set or queued_in(KEYS[8]) or queued_in(KEYS[9]) then return 'PRESENT' end
redis.call('LLEN', KEYS[5])
redis.call('SCARD', KEYS[11])
if redis.call('HGET', KEYS[7], 'state') == 'alive' then
  if phase == 'assigned' then
    redis.call('LPUSH', KEYS[8], payload)
  else
    redis.call('SADD', KEYS[10], payload)
  end
  say(phase, 'its payload was missing from the queues and has been put back')
elseif phase == 'stopping' then
  redis.call('HSET', KEYS[3], 'phase', 'stopped', 'since', STAMP)
  redis.call('SREM', KEYS[11], uuid)
  release(KEYS[7], pod[6], pod[7])
  bury(KEYS[3], KEYS[4], pod[4], pod[5], uuid)
  say('stopped', 'its node is gone, and it was being stopped')
else
  redis.call('HSET', KEYS[3], 'phase', 'pending', 'since', STAMP, 'attempts', 0, 'reason', 'NodeDied',
    'message', 'its node ' .. node .. ' is gone')
  redis.call('HDEL', KEYS[3], 'node', 'assignment', 'address')
  release(KEYS[7], pod[6], pod[7])
  redis.call('LPUSH', KEYS[5], payload)
  say('pending', 'its node ' .. node .. ' is gone')
end
return 'QUEUED'

-- Gives up to 100 payloads of a dead node back to sq. Each is moved only if it is still where it was found, so that
-- any number of schedulers may drain one node at a time. Invariants 2 and 4.
-- KEYS: events, meta, node:<n>, sq, source (cs:<n>, rq:<n> or pq:<n>), stop:<n>, then (pod:<uuid>, slots:<service> or pushed)
--       for each
-- ARGV: node, incarnation seen or '', source type (set | list), then (payload, uuid or '' when unreadable) for each
-- Reply: {'OK', how many were queued} | {'ALIVE'} (the node lives again)
local name, seen, source_type = ARGV[1], ARGV[2], ARGV[3]
local count = (#KEYS - 6) / 2
local node = redis.call('HMGET', KEYS[3], 'state', 'incarnation')
redis.call('LLEN', KEYS[4])
redis.call(source_type == 'set' and 'SCARD' or 'LLEN', KEYS[5])
redis.call('SCARD', KEYS[6])
if node[1] ~= 'dead' or (node[2] or '') ~= seen then return { 'ALIVE' } end
local pods = {}
for p = 1, count do
  pods[p] = redis.call('HMGET', KEYS[5 + 2 * p], 'phase', 'node', 'cpu', 'memory', 'service', 'replica', 'name')
  look_at_wanted(KEYS[6 + 2 * p])
end

local queued, moved = 0, story('PodRescheduled', 'pending')
for p = 1, count do
  local payload, uuid = ARGV[2 + 2 * p], ARGV[3 + 2 * p]
  local pod_key, wanted_key = KEYS[5 + 2 * p], KEYS[6 + 2 * p]
  local removed
  if source_type == 'set' then
    removed = redis.call('SREM', KEYS[5], payload)
  else
    removed = redis.call('LREM', KEYS[5], -1, payload)
  end
  -- Read again: the same uuid may stand twice in one chunk.
  local phase, holder = unpack(redis.call('HMGET', pod_key, 'phase', 'node'), 1, 2)
  local _, _, cpu, memory, service, replica, pod_name = unpack(pods[p], 1, 7)
  if removed == 0 then
    -- Somebody else moved it.
  elseif uuid == '' or not phase then
    redis.call('LPUSH', KEYS[4], payload)
    queued = queued + 1
  elseif holder == name and (phase == 'assigned' or phase == 'running') then
    redis.call('HSET', pod_key, 'phase', 'pending', 'since', STAMP, 'attempts', 0, 'reason', 'NodeDied',
      'message', 'its node ' .. name .. ' was declared dead')
    redis.call('HDEL', pod_key, 'node', 'assignment', 'address')
    release(KEYS[3], cpu, memory)
    redis.call('RPUSH', KEYS[4], payload)
    tell(moved, uuid, pod_name, name, 'its node ' .. name .. ' was declared dead')
    queued = queued + 1
  elseif holder == name and phase == 'stopping' then
    redis.call('HSET', pod_key, 'phase', 'stopped', 'since', STAMP)
    -- Somebody may have asked for it after the node was declared dead: its next life would be asked for ever.
    redis.call('SREM', KEYS[6], uuid)
    release(KEYS[3], cpu, memory)
    bury(pod_key, wanted_key, service, replica, uuid)
    emit('pod', uuid, 'PodStopped', pod_name, name, 'stopped', 'its node ' .. name .. ' was declared dead while stopping it')
    if service then redis.call('PUBLISH', 'wake:reconcile', service) end
  end
end
emit_story(moved)
return { 'OK', queued }

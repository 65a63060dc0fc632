-- A worker asks what to do with payloads it took from its queue. Invariants 3 and 7.
-- KEYS: events, meta, node:<n>, rq:<n>, pushed, stop:<n>, cs:<n>, then (pod:<uuid>, slots:<service> or pushed) for each
-- ARGV: node, incarnation, attempts allowed, pause after a change of master ms, then for each
--       (payload, uuid, fresh assignment, name, image, replica, cpu, memory, has a spec 0|1)
-- Reply: {'FENCED'} | {'PAUSED', ms left} | {'OK', then for each {verdict, assignment, attempt}}, where verdict is
--   'start'    it is this node's: start it as that assignment
--   'running'  it runs here already (perhaps it is to be stopped): the copy was dropped
--   'stale'    it is somebody else's or nobody's: the copy was dropped
--   'stopped'  it is not wanted any more: dropped, and the pod is finished
--   'exhausted' it was tried too often, 'orphan' its service does not know it: reject it
--   'gone'     it is not in rq any more
local name, incarnation, allowed, pause = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIELDS = 9
local count = (#KEYS - 7) / 2
local pods = {}
redis.call('LLEN', KEYS[4])
if is_fenced(KEYS[3], incarnation) then return { 'FENCED' } end
local left = pause_left(pause)
if left > 0 then return { 'PAUSED', left } end
-- What most pods do not need is looked at only where one does.
local any_unknown, any_stopping = false, false
for p = 1, count do
  pods[p] = redis.call('HMGET', KEYS[6 + 2 * p], 'phase', 'node', 'assignment', 'attempts')
  any_unknown = any_unknown or not pods[p][1]
  if pods[p][1] == 'stopping' then
    any_stopping = true
    look_at_wanted(KEYS[7 + 2 * p])
  end
end
if any_unknown then redis.call('SCARD', KEYS[5]) end
if any_stopping then
  redis.call('SCARD', KEYS[6])
  redis.call('SCARD', KEYS[7])
end
-- How many copies of each payload stand in rq.
local copies = {}
for _, payload in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do copies[payload] = (copies[payload] or 0) + 1 end
-- What this batch has made of a pod so far: further copies of its payload may stand in it.
local made = {}

local function runs(payload)
  return redis.call('SISMEMBER', KEYS[7], payload) == 1
end
local function drop(payload)
  copies[payload] = copies[payload] - redis.call('LREM', KEYS[4], -1, payload)
end

local replies = { 'OK' }
for p = 1, count do
  local at = 4 + (p - 1) * FIELDS
  local payload, uuid, fresh, pod_name, image, replica, cpu, memory, has_spec = unpack(ARGV, at + 1, at + FIELDS)
  local pod_key, wanted_key = KEYS[6 + 2 * p], KEYS[7 + 2 * p]
  local phase, node, assignment, attempts = unpack(made[pod_key] or pods[p], 1, 4)
  local verdict
  if (copies[payload] or 0) == 0 then
    verdict = { 'gone' }
  elseif not phase and has_spec == '1' then
    verdict = { 'orphan' }
  elseif not phase then
    redis.call('HSET', pod_key, 'name', pod_name, 'phase', 'assigned', 'replica', replica, 'image', image, 'generation', 0,
      'node', name, 'assignment', fresh, 'attempts', 1, 'cpu', cpu, 'memory', memory, 'created_at', STAMP, 'since', STAMP,
      'payload', payload)
    redis.call('SADD', KEYS[5], uuid)
    redis.call('HINCRBY', KEYS[3], 'used_pods', 1)
    if tonumber(cpu) > 0 then redis.call('HINCRBY', KEYS[3], 'used_cpu', cpu) end
    if tonumber(memory) > 0 then redis.call('HINCRBY', KEYS[3], 'used_memory', memory) end
    emit('pod', uuid, 'PodPushed', pod_name, name, 'assigned', 'pushed onto the queue of ' .. name)
    made[pod_key] = { 'assigned', name, fresh, 1 }
    verdict = { 'start', fresh, 1 }
  elseif node == name and phase == 'assigned' then
    local attempt = (tonumber(attempts) or 0) + 1
    redis.call('HSET', pod_key, 'attempts', attempt)
    made[pod_key] = { phase, node, assignment, attempt }
    verdict = attempt > allowed and { 'exhausted', assignment, attempt } or { 'start', assignment, attempt }
  elseif node == name and (phase == 'running' or (phase == 'stopping' and runs(payload))) then
    -- One that is to be stopped still runs: it is finished when its container is gone.
    drop(payload)
    verdict = { 'running', assignment, 0 }
  elseif node == name and phase == 'stopping' then
    drop(payload)
    local service, slot, held_cpu, held_memory =
      unpack(redis.call('HMGET', pod_key, 'service', 'replica', 'cpu', 'memory'), 1, 4)
    redis.call('HSET', pod_key, 'phase', 'stopped', 'since', STAMP)
    redis.call('SREM', KEYS[6], uuid)
    release(KEYS[3], held_cpu, held_memory)
    bury(pod_key, wanted_key, service, slot, uuid)
    emit('pod', uuid, 'PodStopped', pod_name, name, 'stopped', 'stopped before it was started')
    redis.call('PUBLISH', 'wake:scheduler', 'capacity')
    if service then redis.call('PUBLISH', 'wake:reconcile', service) end
    made[pod_key] = { 'stopped', node, assignment, attempts }
    verdict = { 'stopped', assignment or '', 0 }
  else
    drop(payload)
    emit('pod', uuid, 'StalePayload', pod_name, name, phase,
      'a copy of its payload in the queue of ' .. name .. ' was dropped: the pod is ' .. phase .. (node and ' on ' .. node or ''))
    verdict = { 'stale', '', 0 }
  end
  replies[p + 1] = verdict
end
return replies

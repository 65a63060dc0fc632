-- Repairs a pod whose payload is in no queue that its phase allows: a failover lost the write, or an external
-- worker took it out. If the payload is there it does nothing, so a suspicion suffices.
-- Reply: 'QUEUED' | 'PRESENT' | 'CHANGED' (the pod has moved, or there are other schedulers: read again)
local pod_key, wanted_key, sq, uq, node_key, pq, rq, cs, stop_set, schedulers, ep_key = head_keys()
-- If the pod was seen on no node, `seen_node` is '' and the keys of the node are any names.
local uuid, payload, seen_phase, seen_node = head_args()
local phase, node, name, engine_id = unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'name', 'engine_id'), 1, 4)
node = node or ''
check_wanted_type(wanted_key)
if phase ~= seen_phase or node ~= seen_node then return 'CHANGED' end

local function is_queued_in(key)
  return redis.call('LPOS', key, payload) and true or false
end
local function announce(new_phase, message)
  emit('pod', uuid, 'PodRequeued', name, node, new_phase, message)
end
local REPAIRED = 'its payload was missing from the queues and has been put back'

if phase == 'pending' then
  if redis.call('HEXISTS', uq, uuid) == 1 or is_queued_in(sq) then return 'PRESENT' end
  local known = {}
  for i = 1, scheduler_count do
    local in_flight = scheduler_keys(i)
    local scheduler = scheduler_args(i)
    if is_queued_in(in_flight) then return 'PRESENT' end
    known[scheduler] = true
  end
  -- A scheduler that started after the caller listed them may have it in flight.
  for _, scheduler in ipairs(redis.call('ZRANGE', schedulers, 0, -1)) do
    if not known[scheduler] then return 'CHANGED' end
  end
  redis.call('LPUSH', sq, payload)
  announce('pending', REPAIRED)
  return 'QUEUED'
end
if phase ~= 'assigned' and phase ~= 'running' and phase ~= 'stopping' then return 'CHANGED' end

local runs = redis.call('SISMEMBER', cs, payload) == 1
if runs or is_queued_in(pq) or is_queued_in(rq) then return 'PRESENT' end
redis.call('LLEN', sq)
redis.call('SCARD', stop_set)
local state, current_engine, kind = unpack(redis.call('HMGET', node_key, 'state', 'engine_id', 'kind'), 1, 3)
-- Another machine with the name lacks the pod's volumes. Only records of pods with volumes have an engine.
local is_other = (engine_id or '') ~= '' and engine_id ~= (current_engine or '')
local gone = is_other and 'another machine has the name of its node ' .. node or 'its node ' .. node .. ' is gone'
-- kubeleet's workers change the record first. An external worker can report an end only so, and would never
-- read the payload again.
local has_ended = kind == 'guest' and state == 'alive' and phase ~= 'assigned'
if has_ended then gone = 'the external worker ' .. node .. ' has taken it out of cs:' .. node end
if state == 'alive' and not is_other and not has_ended then
  if phase == 'assigned' then
    redis.call('LPUSH', pq, payload)
  else
    redis.call('SADD', cs, payload)
  end
  announce(phase, REPAIRED)
elseif phase == 'stopping' then
  end_stopped(node_key, stop_set, pod_key, wanted_key, uuid)
  announce('stopped', gone .. ', and it was being stopped')
else
  return_to_pending(pod_key, has_ended and 'ContainerLost' or 'NodeDied', gone)
  release(node_key, pod_key)
  redis.call('LPUSH', sq, payload)
  announce('pending', gone)
end
endpoint(ep_key, pod_key, uuid)
publish_endpoints()
-- An external worker that lives has room now.
if has_ended then wake_schedulers() end
return 'QUEUED'

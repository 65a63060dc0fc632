-- Decides on payloads that a worker took from its queue. Invariants 3 and 7.
-- Reply: {'FENCED'} | {'PAUSED', ms left} | {'OK', then for each pod three elements: verdict, assignment,
--   attempt; these two are '' and 0 where they say nothing}. A list within the list would cost Redis as much
--   as a read. The verdicts are:
--   'start'           it is assigned to this worker: start it as that assignment
--   'running'         it runs here already: the copy was dropped
--   'stopping'        it is to be stopped: it is in cs, and ends once none of its containers is left
--   'stale'           it is assigned to another worker or has ended: the copy was dropped
--   'exhausted'       it was tried too often: reject it
--   'unknown_service' its service does not know it: reject it
--   'broken'          its record is none that kubeleet writes: reject it
--   'gone'            it is not in rq any more
local node_key, rq, pushed, cs = head_keys()
local _, node, incarnation, max_attempts, pause_ms = head_args()
max_attempts = tonumber(max_attempts)
local records = {}
local waiting = redis.call('LRANGE', rq, 0, -1)
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
-- The longest fence may be another node's.
local meta = read_meta('run_id', 'changed_at', 'longest_fence')
local longest_fence = read_longest_fence(meta[3])
local left = pause_left(math.max(tonumber(pause_ms), longest_fence), meta)
if left > 0 then return { 'PAUSED', left } end
-- Keys that most pods do not need are read only for those that do.
local any_unknown, any_stopping = false, false
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local record = read_record(pod_key, 'attempts')
  records[p] = record
  any_unknown = any_unknown or (record and not record[1])
  any_stopping = any_stopping or (record and record[1] == 'stopping')
end
if any_unknown then redis.call('SCARD', pushed) end
if any_stopping then redis.call('SCARD', cs) end
local pushed_pods = {}
for q = 1, pushed_pod_count do
  local pod_index, new_assignment, name, image, replica, ports = pushed_pod_args(q)
  pushed_pods[pod_index] = { assignment = new_assignment, name = name, image = image, replica = replica,
    ports = ports, request = pushed_pod_resources(q) }
end
local copies = {}
for _, payload in ipairs(waiting) do copies[payload] = (copies[payload] or 0) + 1 end
-- Records that this batch has changed: it may contain further copies of their payloads.
local changed = {}

local function drop(payload)
  copies[payload] = copies[payload] - redis.call('LREM', rq, -1, payload)
end

local replies = { 'OK' }
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local payload = pod_args(p)
  local phase, holder, assignment, attempts = unpack(changed[pod_key] or records[p] or {}, 1, 4)
  local pushed_pod = not phase and pushed_pods[tostring(p)]
  local verdict, told_assignment, attempt = nil, '', 0
  if (copies[payload] or 0) == 0 then
    verdict = 'gone'
  elseif not records[p] then
    verdict = 'broken'
  elseif not (phase or pushed_pod) then
    verdict = 'unknown_service'
  elseif pushed_pod then
    local new_assignment, request, name = pushed_pod.assignment, pushed_pod.request, pushed_pod.name
    local uuid = uuid_of(pod_key)
    create_pushed_pod(pod_key, pushed, uuid, name, pushed_pod.image, pushed_pod.replica, payload, request,
      'phase', 'assigned', 'node', node, 'assignment', new_assignment, 'attempts', 1)
    reserve(node_key, 1, request)
    reserve_ports(node_key, pod_key, uuid, name, pushed_pod.ports)
    emit('pod', uuid, 'PodPushed', name, node, 'assigned', 'pushed onto the queue of ' .. node)
    changed[pod_key] = { 'assigned', node, new_assignment, 1 }
    verdict, told_assignment, attempt = 'start', new_assignment, 1
  elseif holder == node and phase == 'assigned' then
    attempt = (tonumber(attempts) or 0) + 1
    redis.call('HSET', pod_key, 'attempts', attempt == 1 and '1' or attempt)
    local record = changed[pod_key] or records[p]
    record[4] = attempt
    changed[pod_key] = record
    verdict, told_assignment = attempt > max_attempts and 'exhausted' or 'start', assignment
  elseif holder == node and phase == 'running' then
    drop(payload)
    verdict = 'running'
  elseif holder == node and phase == 'stopping' then
    -- An interrupted start may have left containers with the volumes and ports of the successor. Only the
    -- worker knows.
    redis.call('SADD', cs, payload)
    drop(payload)
    verdict = 'stopping'
  else
    drop(payload)
    local name = redis.call('HGET', pod_key, 'name')
    emit('pod', uuid_of(pod_key), 'StalePayload', name, node, phase, 'a copy of its payload in the queue of ' .. node
      .. ' was dropped: the pod is ' .. phase .. ((holder or '') ~= '' and ' on ' .. holder or ''))
    verdict = 'stale'
  end
  local at = 3 * p
  replies[at - 1], replies[at], replies[at + 1] = verdict, told_assignment, attempt
end
return replies

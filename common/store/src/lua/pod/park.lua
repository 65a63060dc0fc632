-- Moves pods that fit no node from the in-flight list to the unschedulable set, with the refusals. Invariant
-- 2.
-- Reply: for each pod 'ok'
--        | 'stale' (no longer pending: its payload was dropped)
--        | 'gone' (not in this scheduler's in-flight list any more)
--        | 'unknown_service' (its service does not know it: still in flight, reject it)
--        | 'changed' (room appeared since the scheduler read the nodes: still in flight, look again)
local in_flight, uq, uq_at, uq_why, uq_class, uq_by_class, pushed = head_keys()
-- `seen_freed` is '' if the pods are parked whatever has happened to the nodes.
local seen_freed = head_args()
local MIN_WAIT_MS, MAX_WAIT_MS = 1000, 60000
local records = {}
redis.call('LLEN', in_flight)
redis.call('HLEN', uq)
redis.call('ZCARD', uq_at)
redis.call('HLEN', uq_why)
redis.call('SCARD', pushed)
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'reason', 'attempts', 'message')
end
check_class_types(uq_class, uq_by_class)

local replies = {}
if seen_freed ~= '' and (read_meta('freed')[1] or '0') ~= seen_freed then
  for p = 1, pod_count do replies[p] = 'changed' end
  return replies
end
local must_be_looked_at = false
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  -- Pods of one class fit the same nodes, and wait until one of them fits. Without a class, '', a pod waits
  -- for its backoff.
  local uuid, class, payload, refusals, message, name, image, replica, in_service = pod_args(p)
  local phase, reason, attempts, last_message = unpack(records[p], 1, 4)
  if not phase and in_service == '1' then
    replies[p] = 'unknown_service'
  elseif redis.call('LREM', in_flight, -1, payload) == 0 then
    replies[p] = 'gone'
  elseif phase and phase ~= 'pending' then
    replies[p] = 'stale'
  else
    local tries = (reason == 'Unschedulable' and class == '' and tonumber(attempts) or 0) + 1
    if not phase then
      create_pushed_pod(pod_key, pushed, uuid, name, image, replica, payload, pod_resources(p))
    end
    redis.call('HSET', pod_key, 'phase', 'pending', 'reason', 'Unschedulable', 'message', message,
      'attempts', tries)
    redis.call('HSET', uq, uuid, payload)
    redis.call('HSET', uq_why, uuid, refusals)
    leave_class(uq_class, uq_by_class, uuid)
    local wait = MAX_WAIT_MS
    if class == '' then
      wait = math.min(MAX_WAIT_MS, MIN_WAIT_MS * 2 ^ math.min(tries - 1, 10))
    else
      redis.call('HSET', uq_class, uuid, class .. ' ' .. STAMP)
      redis.call('ZADD', uq_by_class, 0, class .. ' ' .. STAMP .. ' ' .. uuid)
      must_be_looked_at = seen_freed == ''
    end
    redis.call('ZADD', uq_at, NOW + wait, uuid)
    if reason ~= 'Unschedulable' or last_message ~= message then
      emit('pod', uuid, 'Unschedulable', name, '', 'pending', message)
    end
    replies[p] = 'ok'
  end
end
-- Room may have appeared before they were here to be woken.
if must_be_looked_at then redis.call('PUBLISH', 'wake:scheduler', 'parked') end
return replies

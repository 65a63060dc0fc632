-- Stops pods that are not wanted any more.
-- Reply: for each pod 'stopped' (ended at once) | 'stopping' (its node will stop it)
--        | 'moved' (it is on another node, or ready although only others are to be stopped: read it again)
--        | 'gone'
local uq, uq_at, uq_why, uq_class, uq_by_class, wanted_key, ep_key = head_keys()
local reason, message, spares_ready = head_args()
local records = {}
redis.call('HLEN', uq)
redis.call('ZCARD', uq_at)
redis.call('HLEN', uq_why)
check_wanted_type(wanted_key)
for p = 1, pod_count do
  local pod_key, stop_set = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'node', 'name', 'reason')
  redis.call('SCARD', stop_set)
end
check_class_types(uq_class, uq_by_class)

local replies = {}
local stopped, stopping = batch_event('PodStopped', 'stopped'), batch_event('PodStopping', 'stopping')
for p = 1, pod_count do
  local pod_key, stop_set = pod_keys(p)
  local uuid, seen_node = pod_args(p)
  local phase, node, name, problem = unpack(records[p], 1, 4)
  local is_ready = phase == 'running' and (problem or '') == ''
  if not phase or phase == 'stopped' then
    replies[p] = 'gone'
    if phase then forget_pod(pod_key, wanted_key, uuid) end
  elseif phase == 'pending' or phase == 'succeeded' or phase == 'failed' then
    redis.call('HSET', pod_key, 'phase', 'stopped', 'since', STAMP, 'reason', reason, 'message', message)
    forget_unschedulable(uq, uq_at, uq_why, uq_class, uq_by_class, uuid)
    forget_pod(pod_key, wanted_key, uuid)
    add(stopped, uuid, name, '', message)
    -- The container of a pod that had ended was kept for its logs.
    local node = phase ~= 'pending' and records[p][2]
    if node and node ~= '' then redis.call('PUBLISH', 'wake:' .. node, 'discard') end
    replies[p] = 'stopped'
  elseif node ~= seen_node or (is_ready and spares_ready == '1') then
    replies[p] = 'moved'
  else
    if phase ~= 'stopping' then
      begin_stopping(pod_key, reason, message)
      endpoint(ep_key, pod_key, uuid)
      add(stopping, uuid, name, node, message)
    end
    request_stop(stop_set, uuid, node)
    replies[p] = 'stopping'
  end
end
emit_batch(stopped)
emit_batch(stopping)
publish_endpoints()
return replies

-- Stops pods that serve, each for a ready successor in the other place of its slot, or for one that is
-- created afterwards.
-- Reply: {'OK', the new step, for each pod 'stopping' | 'moved' (it is on another node, does
--        not run any more, or its successor is not ready any more: read it again)}
--        | {'CHANGED'} (the service has another specification, or another step was taken: read it again)
local service_key, slots, ep_key = head_keys()
local spec, step, message = head_args()
local current_spec, state = unpack(redis.call('HMGET', service_key, 'spec', 'state'), 1, 2)
redis.call('HLEN', slots)
local records, successors = {}, {}
for p = 1, pod_count do
  -- Without a successor it is the pod's own key.
  local pod_key, stop_set, successor_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'node', 'name', 'replica')
  successors[p] = redis.call('HMGET', successor_key, 'phase', 'reason')
  redis.call('SCARD', stop_set)
end
if current_spec ~= spec or state ~= 'active' then return { 'CHANGED' } end
local next_step = take_step(service_key, step)
if not next_step then return { 'CHANGED' } end

-- Returns whether another pod serves in the slot; true where none is needed.
local function is_replaced(p, replica, successor)
  local phase, reason = unpack(successors[p], 1, 2)
  if successor == '' then return true end
  return has_slot(slots, replica, successor)
    and (phase == 'succeeded' or (phase == 'running' and (reason or '') == ''))
end

local replies, stopping = { 'OK', next_step }, batch_event('PodStopping', 'stopping')
for p = 1, pod_count do
  local pod_key, stop_set = pod_keys(p)
  local uuid, seen_node, successor = pod_args(p)
  local phase, node, name, replica = unpack(records[p], 1, 4)
  if phase == 'running' and node == seen_node and replica and is_replaced(p, replica, successor) then
    begin_stopping(pod_key, 'Replaced', message)
    endpoint(ep_key, pod_key, uuid)
    add(stopping, uuid, name, node, message)
    request_stop(stop_set, uuid, node)
    replies[#replies + 1] = 'stopping'
  else
    replies[#replies + 1] = 'moved'
  end
end
emit_batch(stopping)
publish_endpoints()
return replies

-- Records the pods in the container set of an external worker as running there.
-- Reply: number of pods that were not known to run there
local node_key, cs, pushed = head_keys()
local node = head_args()
local kind, state = unpack(redis.call('HMGET', node_key, 'kind', 'state'), 1, 2)
redis.call('SCARD', cs)
redis.call('SCARD', pushed)
if kind ~= 'guest' or state ~= 'alive' then return 0 end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  redis.call('HLEN', pod_key)
end

local found = 0
for p = 1, pod_count do
  local pod_key, ep_key = pod_keys(p)
  local payload, uuid, new_assignment, name, image, replica = pod_args(p)
  -- Read here: two payloads in the set may have the same uuid.
  local phase, holder = unpack(redis.call('HMGET', pod_key, 'phase', 'node'), 1, 2)
  if redis.call('SISMEMBER', cs, payload) == 1 then
    if not phase then
      create_pushed_pod(pod_key, pushed, uuid, name, image, replica, payload, {}, 'node', node,
        'assignment', new_assignment)
      reserve(node_key, 1, {})
    end
    if not phase or (phase == 'assigned' and holder == node) then
      redis.call('HSET', pod_key, 'phase', 'running', 'since', STAMP)
      endpoint(ep_key, pod_key, uuid)
      emit('pod', uuid, 'PodStarted', name, node, 'running', 'started on the external worker ' .. node)
      found = found + 1
    end
  end
end
publish_endpoints()
return found

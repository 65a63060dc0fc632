-- Records that the container of a running pod is gone: the pod is queued on its node again, as a new
-- assignment.
-- Reply: 'OK' | 'FENCED' | 'STALE'
local node_key, cs, pq, pod_key, ep_key = head_keys()
local node, incarnation, uuid, assignment, payload, new_assignment = head_args()
redis.call('SCARD', cs)
redis.call('LLEN', pq)
if is_fenced(node_key, incarnation) then return 'FENCED' end
local phase, holder, current_assignment, name =
  unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'name'), 1, 4)
if phase ~= 'running' or holder ~= node or current_assignment ~= assignment then return 'STALE' end
local message = 'its container is gone; it is started again'
redis.call('SREM', cs, payload)
redis.call('LPUSH', pq, payload)
redis.call('HSET', pod_key, 'phase', 'assigned', 'assignment', new_assignment, 'since', STAMP,
  'reason', 'ContainerLost', 'message', message)
endpoint(ep_key, pod_key, uuid)
publish_endpoints()
emit('pod', uuid, 'ContainerLost', name, node, 'assigned', message)
return 'OK'

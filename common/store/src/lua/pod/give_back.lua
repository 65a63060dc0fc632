-- Returns a pod that its worker cannot start to the schedulers. Ports of another program count as taken until
-- reconciliation frees them, so the node is avoided for a while.
-- Reply: 'OK' | 'FENCED' | 'STALE' (it is not to be started here any more)
local node_key, rq, sq, pod_key = head_keys()
-- `ports` are those that are taken, `reason` is a word.
local node, incarnation, uuid, assignment, payload, ports, reason, message = head_args()
redis.call('LLEN', rq)
redis.call('LLEN', sq)
if is_fenced(node_key, incarnation) then return 'FENCED' end
local phase, holder, current_assignment, name =
  unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'name'), 1, 4)
if phase ~= 'assigned' or holder ~= node or current_assignment ~= assignment then return 'STALE' end
if redis.call('LREM', rq, -1, payload) == 0 then return 'STALE' end
return_to_pending(pod_key, reason, message)
release(node_key, pod_key)
each_port(ports, function(field) redis.call('HSETNX', node_key, field, '- another program') end)
redis.call('LPUSH', sq, payload)
emit('pod', uuid, 'PodGivenBack', name, node, 'pending', message)
wake_schedulers()
return 'OK'

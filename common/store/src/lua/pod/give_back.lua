-- Returns a pod that a worker cannot start, because another program has its host ports, its node has a
-- problem or the data of its volume is elsewhere, to the schedulers. The ports count as taken until
-- reconciliation finds no pod that has them, so that the node is avoided for a while; a problem of the node
-- is in its heartbeat.
-- Reply: 'OK' | 'FENCED' | 'STALE' (it is not to be started here any more)
local node_key, rq, sq, pod_key = head_keys()
-- `ports` are those that are taken, as in the record. `reason` is why in a word.
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
return 'OK'

-- A worker misses the container of a pod that should run on it: a new attempt, as a new assignment.
-- KEYS: events, meta, node:<n>, cs:<n>, pq:<n>, pod:<uuid>
-- ARGV: node, incarnation, uuid, assignment, payload, fresh assignment
-- Reply: 'OK' | 'FENCED' | 'STALE'
local name, incarnation, uuid, assignment, payload, fresh = unpack(ARGV)
redis.call('SCARD', KEYS[4])
redis.call('LLEN', KEYS[5])
if is_fenced(KEYS[3], incarnation) then return 'FENCED' end
local pod = redis.call('HMGET', KEYS[6], 'phase', 'node', 'assignment', 'name')
if pod[1] ~= 'running' or pod[2] ~= name or pod[3] ~= assignment then return 'STALE' end
redis.call('SREM', KEYS[4], payload)
redis.call('LPUSH', KEYS[5], payload)
redis.call('HSET', KEYS[6], 'phase', 'assigned', 'assignment', fresh, 'since', STAMP, 'reason', 'ContainerLost',
  'message', 'its container is gone; it is started again')
emit('pod', uuid, 'ContainerLost', pod[4], name, 'assigned', 'its container is gone; it is started again')
return 'OK'

-- A worker says that a pod of its own ended: because it was asked to stop it, or by itself.
-- KEYS: events, meta, node:<n>, rq:<n>, cs:<n>, stop:<n>, slots:<service> or pushed, pod:<uuid>
-- ARGV: node, incarnation, uuid, assignment, payload, outcome (stopped | succeeded | failed), reason, message, exit code or ''
-- Reply: 'OK' | 'FENCED' | 'STALE' (not its own) | 'WANTED' (nobody asked to stop it: it was lost, not stopped)
local name, incarnation, uuid, assignment, payload, outcome, reason, message, exit_code = unpack(ARGV)
redis.call('LLEN', KEYS[4])
redis.call('SCARD', KEYS[5])
redis.call('SCARD', KEYS[6])
look_at_wanted(KEYS[7])
if is_fenced(KEYS[3], incarnation) then return 'FENCED' end
local pod = redis.call('HMGET', KEYS[8], 'phase', 'node', 'assignment', 'service', 'replica', 'cpu', 'memory', 'name')
local phase, node, held, service, replica = unpack(pod, 1, 5)
if node ~= name or held ~= assignment then
  redis.call('SREM', KEYS[6], uuid)
  return 'STALE'
end
if phase == 'stopped' or phase == 'succeeded' or phase == 'failed' then
  redis.call('SREM', KEYS[6], uuid)
  return 'OK'
end
if phase == 'stopping' then outcome = 'stopped' end
if outcome == 'stopped' and phase ~= 'stopping' then return 'WANTED' end
if phase ~= 'stopping' and phase ~= 'running' then return 'STALE' end

redis.call('LREM', KEYS[4], -1, payload)
redis.call('SREM', KEYS[5], payload)
redis.call('SREM', KEYS[6], uuid)
redis.call('HSET', KEYS[8], 'phase', outcome, 'since', STAMP, 'exit_code', exit_code)
if phase ~= 'stopping' then redis.call('HSET', KEYS[8], 'reason', reason, 'message', message) end
release(KEYS[3], pod[6], pod[7])
if outcome == 'stopped' then bury(KEYS[8], KEYS[7], service, replica, uuid) end
local words = { stopped = 'PodStopped', succeeded = 'PodSucceeded', failed = 'PodFailed' }
emit('pod', uuid, words[outcome], pod[8], name, outcome, message)
redis.call('PUBLISH', 'wake:scheduler', 'capacity')
if service then redis.call('PUBLISH', 'wake:reconcile', service) end
return 'OK'

-- Records that a pod ended, by a stop or by itself.
-- Reply: 'OK' | 'FENCED' | 'STALE' (not this worker's)
--        | 'WANTED' (there is no request to stop it: it was lost, not stopped)
local node_key, rq, cs, stop_set, wanted_key, pod_key, ep_key, service_key, done, tries = head_keys()
-- The outcome is 'stopped', 'succeeded' or 'failed'; exit code and `drained` (what was in flight before the
-- stop) may be ''.
local node, incarnation, uuid, assignment, payload, outcome, reason, message, exit_code, containers, kept_runs, runs,
  drained = head_args()
redis.call('LLEN', rq)
redis.call('SCARD', cs)
redis.call('SCARD', stop_set)
check_wanted_type(wanted_key)
redis.call('HLEN', done)
redis.call('HLEN', tries)
if is_fenced(node_key, incarnation) then return 'FENCED' end
local phase, holder, current_assignment, service, name, replica =
  unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'service', 'name', 'replica'), 1, 6)
if holder ~= node or current_assignment ~= assignment then
  redis.call('SREM', stop_set, uuid)
  return 'STALE'
end
if phase == 'stopped' or phase == 'succeeded' or phase == 'failed' then
  redis.call('SREM', stop_set, uuid)
  return 'OK'
end
if phase == 'stopping' then outcome = 'stopped' end
if outcome == 'stopped' and phase ~= 'stopping' then
  -- A request written by hand would stop each successor.
  redis.call('SREM', stop_set, uuid)
  return 'WANTED'
end
if phase ~= 'stopping' and phase ~= 'running' then return 'STALE' end

redis.call('LREM', rq, -1, payload)
redis.call('SREM', cs, payload)
redis.call('HSET', pod_key, 'exit_code', exit_code)
note_containers(pod_key, containers, kept_runs, runs)
if outcome == 'stopped' then
  end_stopped(node_key, stop_set, pod_key, wanted_key, uuid)
else
  redis.call('SREM', stop_set, uuid)
  redis.call('HSET', pod_key, 'phase', outcome, 'since', STAMP, 'reason', reason, 'message', message)
  release(node_key, pod_key)
  -- In the same step: a repeated report finds the pod ended and counts nothing.
  if service and outcome == 'succeeded' then count_completion(service_key, done, tries, service, replica, pod_key) end
  if service and outcome == 'failed' then count_failure(service_key, done, tries, replica, pod_key) end
  if service then redis.call('PUBLISH', 'wake:reconcile', service) end
end
if drained ~= '' then emit('pod', uuid, 'PodDrained', name, node, outcome, drained) end
endpoint(ep_key, pod_key, uuid)
publish_endpoints()
local event_reasons = { stopped = 'PodStopped', succeeded = 'PodSucceeded', failed = 'PodFailed' }
emit('pod', uuid, event_reasons[outcome], name, node, outcome, message)
wake_schedulers()
return 'OK'

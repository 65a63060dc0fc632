-- Records the state of a pod within its phase.
-- Reply: 'OK' | 'FENCED' | 'STALE'
local node_key, pod_key, ep_key = head_keys()
-- The reason is '' if the pod is well; restarts and exit code are '' if unknown. Address and ports count only
-- if `published` is not ''.
local node, incarnation, uuid, assignment, reason, message, restarts, exit_code, address, published,
  containers, kept_runs, runs = head_args()
if is_fenced(node_key, incarnation) then return 'FENCED' end
local phase, holder, current_assignment, name, last_reason, last_restarts =
  unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'name', 'reason', 'restarts'), 1, 6)
if holder ~= node or current_assignment ~= assignment or (phase ~= 'assigned' and phase ~= 'running') then
  return 'STALE'
end
redis.call('HSET', pod_key, 'reason', reason, 'message', message)
-- A wait for other services is no attempt to start the pod.
if phase == 'assigned' and reason == 'WaitingForDependencies' then redis.call('HSET', pod_key, 'attempts', 0) end
if reason == '' and (last_reason or '') ~= '' then redis.call('HSET', pod_key, 'ready_since', STAMP) end
if restarts ~= '' then redis.call('HSET', pod_key, 'restarts', restarts) end
if exit_code ~= '' then redis.call('HSET', pod_key, 'exit_code', exit_code) end
if published ~= '' then redis.call('HSET', pod_key, 'address', address, 'published', published) end
note_containers(pod_key, containers, kept_runs, runs)
if reason ~= (last_reason or '') then
  endpoint(ep_key, pod_key, uuid)
  publish_endpoints()
end
if reason ~= '' and (reason ~= last_reason or (restarts ~= '' and restarts ~= last_restarts)) then
  emit('pod', uuid, reason, name, node, phase, message)
elseif reason == '' and last_reason == 'Starting' then
  emit('pod', uuid, 'PodReady', name, node, phase, 'all its containers have been started')
elseif reason == '' and last_reason and last_reason ~= '' then
  emit('pod', uuid, 'PodRecovered', name, node, phase, 'recovered from ' .. last_reason)
end
return 'OK'

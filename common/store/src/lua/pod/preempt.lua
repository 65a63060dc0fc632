-- Stops pods of a lower priority on a node for a waiting one that fits nowhere, and keeps their room for it.
-- Reply: 'OK'
--        | 'CHANGED' (the waiting pod, the node, a pod there or its service is not as it was seen, or other
--          pods would do by now: look again)
-- Priorities are those of services, whose every change raises the revision.
local node_key, stop_set, nominee_key, its_service_key = head_keys()
local node, seen_incarnation, nominee, name, its_seen_revision, kept_ms, dead_after_ms, message = head_args()
local request = head_resources()
redis.call('SCARD', stop_set)

local fields = { unpack(RESOURCES) }
for r = 1, RESOURCE_COUNT do fields[RESOURCE_COUNT + r] = 'used_' .. RESOURCES[r] end
local amounts = redis.call('HMGET', node_key, unpack(fields))
local state, incarnation, beat, cordoned, engine_problem, disk_problem, pods, used_pods, nominated =
  unpack(redis.call('HMGET', node_key, 'state', 'incarnation', 'beat', 'cordoned', 'engine_problem', 'disk_problem',
    'pods', 'used_pods', 'nominated'), 1, 9)
local is_ready = state == 'alive' and incarnation == seen_incarnation and cordoned ~= '1'
  and (engine_problem or '') == '' and (disk_problem or '') == ''
  and NOW - (past(beat) or 0) <= tonumber(dead_after_ms)
if not is_ready or read_nomination(nominated) then return 'CHANGED' end
if redis.call('HGET', nominee_key, 'phase') ~= 'pending' then return 'CHANGED' end
if redis.call('HGET', its_service_key, 'revision') ~= its_seen_revision then return 'CHANGED' end

-- The amounts that are free once all of these pods are gone, and those of each pod.
local free, free_pods, parts = {}, (tonumber(pods) or 0) - (tonumber(used_pods) or 0) + pod_count, {}
for r = 1, RESOURCE_COUNT do
  request[r] = bounded(request[r])
  free[r] = (tonumber(amounts[r]) or 0) - (tonumber(amounts[RESOURCE_COUNT + r]) or 0)
end
local names, steps = {}, {}
for p = 1, pod_count do
  local pod_key, service_key, ep_key = pod_keys(p)
  local uuid, seen_assignment, seen_step, seen_revision = pod_args(p)
  local part = redis.call('HMGET', pod_key, unpack(RESOURCES))
  local phase, its_node, assignment, its_name =
    unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'name'), 1, 4)
  local its_state, step, revision = unpack(redis.call('HMGET', service_key, 'state', 'step', 'revision'), 1, 3)
  if (phase ~= 'assigned' and phase ~= 'running') or its_node ~= node or assignment ~= seen_assignment
    or its_state ~= 'active' or (step or '') ~= seen_step or revision ~= seen_revision then return 'CHANGED' end
  for r = 1, RESOURCE_COUNT do
    part[r] = bounded(part[r])
    free[r] = free[r] + part[r]
  end
  parts[p], names[p], steps[service_key] = part, its_name, seen_step
end
local function fits_without(part, part_pods)
  for r = 1, RESOURCE_COUNT do
    if request[r] > 0 and request[r] > free[r] - (part and part[r] or 0) then return false end
  end
  return free_pods - part_pods >= 1
end
if not fits_without(nil, 0) then return 'CHANGED' end
for p = 1, pod_count do
  if fits_without(parts[p], 1) then return 'CHANGED' end
end

local preempted = batch_event('PodPreempted', 'stopping')
for p = 1, pod_count do
  local pod_key, service_key, ep_key = pod_keys(p)
  local uuid = pod_args(p)
  begin_stopping(pod_key, 'Preempted', message)
  endpoint(ep_key, pod_key, uuid)
  add(preempted, uuid, names[p] or '', node, message)
  request_stop(stop_set, uuid, node)
end
for service_key, step in pairs(steps) do take_step(service_key, step) end
local kept = { nominee, STAMP, string.format('%.0f', NOW + math.min(tonumber(kept_ms), MAX_NOMINATION_MS)) }
for r = 1, RESOURCE_COUNT do kept[#kept + 1] = string.format('%.0f', request[r]) end
redis.call('HSET', node_key, 'nominated', table.concat(kept, ' '))
emit_batch(preempted)
emit('pod', nominee, 'PodNominated', name, node, 'pending',
  'gets the room of ' .. pod_count .. (pod_count == 1 and ' pod' or ' pods') .. ' of a lower priority')
publish_endpoints()
return 'OK'

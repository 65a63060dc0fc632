-- Records pods that are on a node as wanted again: in the slots of their service, or among the pushed pods.
-- A user or a failover has removed them from there.
-- Reply: for each pod 'restored' | 'present' (nothing was missing) | 'changed' (it is on no node any more)
--        | 'surplus' (its slot is taken or not desired: stop it) | 'unknown_service'
local service_key, wanted_key, ep_key = head_keys()
-- '' for pushed pods; `service_key` is then any name.
local service = head_args()
local state, replicas
if service ~= '' then
  state, replicas = unpack(redis.call('HMGET', service_key, 'state', 'replicas'), 1, 2)
end
check_wanted_type(wanted_key)
local records = {}
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'service', 'replica')
end
replicas = tonumber(replicas) or 0

local replies, restored = {}, batch_event('PodRestored', '')
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  local phase, pod_service, replica = unpack(records[p], 1, 3)
  local index = tonumber(replica)
  if (phase ~= 'assigned' and phase ~= 'running' and phase ~= 'stopping')
    or (pod_service or '') ~= service then
    replies[p] = 'changed'
  elseif service == '' then
    replies[p] = redis.call('SADD', wanted_key, uuid) == 1 and 'restored' or 'present'
  elseif not state then
    replies[p] = 'unknown_service'
  else
    local holder = replica and redis.call('HGET', wanted_key, replica)
    if holder == uuid then
      replies[p] = 'present'
    elseif holder or not index or state ~= 'active' or index >= replicas then
      replies[p] = 'surplus'
    else
      redis.call('HSET', wanted_key, replica, uuid)
      replies[p] = 'restored'
    end
  end
  if replies[p] == 'restored' then
    -- A set that was made meanwhile lacks it: it was in no slot.
    endpoint(ep_key, pod_key, uuid)
    add(restored, uuid, service ~= '' and service or 'pushed', '',
      'it runs, but was not listed; listed again')
  end
end
emit_batch(restored)
publish_endpoints()
return replies

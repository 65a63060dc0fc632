-- Lists pods on a node again, in the slots of their service or among the pushed pods, after a user or a
-- failover removed them.
-- Reply: for each pod 'restored' | 'present' (nothing was missing) | 'changed' (it is on no node any more)
--        | 'surplus' (its slot is taken or not desired: stop it) | 'unknown_service'
local service_key, wanted_key, ep_key = head_keys()
-- `service` is '' for pushed pods; `service_key` is then any name. `has_second`: a replica may have two pods.
local service, has_second = head_args()
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
    if replica and has_slot(wanted_key, replica, uuid) then
      replies[p] = 'present'
    elseif not index or state ~= 'active' or index >= replicas then
      replies[p] = 'surplus'
    elseif redis.call('HSETNX', wanted_key, replica, uuid) == 1
      or (has_second == '1' and redis.call('HSETNX', wanted_key, replica .. '+', uuid) == 1) then
      replies[p] = 'restored'
    else
      replies[p] = 'surplus'
    end
  end
  if replies[p] == 'restored' then
    -- A set made meanwhile lacks it: it was in no slot.
    endpoint(ep_key, pod_key, uuid)
    add(restored, uuid, service ~= '' and service or 'pushed', '',
      'it runs, but was not listed; listed again')
  end
end
emit_batch(restored)
publish_endpoints()
return replies

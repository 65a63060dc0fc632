-- Frees slots whose pod has no record any more (lost in a failover, or deleted by hand), so that it can be
-- created again. A slot that another pod holds by now, or whose pod has a record after all, is left alone.
-- With '' for the pod: the first place of the replica is empty, and the pod in the second one takes it.
-- Reply: number of slots that were changed
local slots, ep_key = head_keys()
local service = head_args()
redis.call('HLEN', slots)
local freed = 0
for s = 1, slot_count do
  local pod_key = slot_keys(s)
  local replica, uuid = slot_args(s)
  if uuid == '' then
    if vacate_slot(slots, replica, '') then freed = freed + 1 end
  elseif redis.call('EXISTS', pod_key) == 0 and vacate_slot(slots, replica, uuid) then
    endpoint(ep_key, pod_key, uuid)
    emit('pod', uuid, 'PodLost', service, '', '',
      'its record is gone; replica ' .. replica .. ' is created again')
    freed = freed + 1
  end
end
publish_endpoints()
return freed

-- Frees slots whose pod has no record, so that it is created again. Also frees void slots, which another
-- program has copied: the record names another slot, or the pod has both places. That pod is left alone. With
-- '' for the pod the first place is empty, and the pod in the second one takes it.
-- Reply: number of slots that were changed
local slots, ep_key = head_keys()
local service = head_args()
redis.call('HLEN', slots)
local records = {}
for s = 1, slot_count do
  local pod_key = slot_keys(s)
  local _, uuid = slot_args(s)
  records[s] = uuid ~= '' and redis.call('HMGET', pod_key, 'service', 'replica', 'phase') or {}
end
local freed = 0
for s = 1, slot_count do
  local pod_key = slot_keys(s)
  local replica, uuid = slot_args(s)
  local pod_service, pod_replica, phase = unpack(records[s], 1, 3)
  local is_there = phase or redis.call('EXISTS', pod_key) == 1
  local is_twice = redis.call('HGET', slots, replica) == uuid and redis.call('HGET', slots, replica .. '+') == uuid
  local is_void = is_there and (pod_service ~= service or pod_replica ~= replica or is_twice)
  if uuid == '' then
    if vacate_slot(slots, replica, '') then freed = freed + 1 end
  elseif (is_void or not is_there) and vacate_slot(slots, replica, uuid) then
    endpoint(ep_key, pod_key, uuid)
    if is_void then
      emit('service', service, 'SlotVoid', service, '', '', 'its slot ' .. replica .. ' named the pod ' .. uuid
        .. ', which has another one: freed')
    else
      emit('pod', uuid, 'PodLost', service, '', '',
        'its record is gone; replica ' .. replica .. ' is created again')
    end
    freed = freed + 1
  end
end
publish_endpoints()
return freed

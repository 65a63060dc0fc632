-- Counts succeeded pods of a job that are not counted: Redis had lost the job when they ended, or they were
-- recovered.
-- Reply: number of indices that were counted
local service_key, done, tries = head_keys()
local service = head_args()
redis.call('HLEN', done)
redis.call('HLEN', tries)
local records = {}
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'service', 'replica')
end
local counted, event = 0, batch_event('PodCounted', 'succeeded')
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  local phase, pod_service, replica = unpack(records[p], 1, 3)
  if phase == 'succeeded' and pod_service == service
    and count_completion(service_key, done, tries, service, replica, pod_key) then
    counted = counted + 1
    add(event, uuid, service, '', 'index ' .. replica .. ' is complete')
  end
end
emit_batch(event)
return counted

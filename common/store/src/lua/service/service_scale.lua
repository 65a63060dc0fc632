-- Changes only the number of replicas of a service.
-- Reply: {'OK', replicas before} | {'MISSING'} | {'DELETING'} | {'CONFLICT', revision}
--        | {'KIND', what it is} (a job, a cron and a global service have no
--        number of replicas)
local service_key, unconfirmed = head_keys()
local service, replicas, expected_revision, write = head_args()
local state, before = unpack(redis.call('HMGET', service_key, 'state', 'replicas'), 1, 2)
local _, revision = versions_of(service_key)
if not state then return { 'MISSING' } end
if state == 'deleting' then return { 'DELETING' } end
local kind = redis.call('HGET', service_key, 'kind')
if kind then return { 'KIND', kind } end
if expected_revision ~= '' and tonumber(expected_revision) ~= revision then
  return { 'CONFLICT', revision }
end
before = before or '0'
if tonumber(replicas) <= (tonumber(before) or 0) then allow_at_maxmemory() end
note_unconfirmed(unconfirmed, service, write)
if before ~= replicas then
  redis.call('HSET', service_key, 'replicas', replicas, 'updated_at', STAMP,
    'scaled_at', STAMP, 'revision', revision + 1, 'write', write)
  emit('service', service, 'ServiceScaled', service, '', '',
    'scaled from ' .. before .. ' to ' .. replicas)
  redis.call('PUBLISH', 'wake:reconcile', service)
end
return { 'OK', tonumber(before) }

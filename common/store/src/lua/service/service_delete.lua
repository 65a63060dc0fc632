-- Marks a service as deleted; the reconcile loop stops its pods and forgets it.
-- Reply: {'OK'} (also if it is being deleted already) | {'MISSING'} | {'CONFLICT', revision}
local service_key, unconfirmed, deleted = head_keys()
-- While a deletion is remembered, saved state does not bring the service back.
local REMEMBERED_MS, MAX_REMEMBERED = 30 * 86400000, 10000
local service, expected_revision, write = head_args()
local state = redis.call('HGET', service_key, 'state')
local _, revision = versions_of(service_key)
if not state then return { 'MISSING' } end
if expected_revision ~= '' and tonumber(expected_revision) ~= revision then
  return { 'CONFLICT', revision }
end
note_unconfirmed(unconfirmed, service, write)
if state ~= 'deleting' then
  redis.call('HSET', service_key, 'state', 'deleting', 'replicas', 0, 'updated_at', STAMP,
    'revision', revision + 1, 'write', write)
  -- A broken key keeps no service from being deleted.
  redis.pcall('ZADD', deleted, STAMP, service)
  redis.pcall('ZREMRANGEBYSCORE', deleted, '-inf', NOW - REMEMBERED_MS)
  redis.pcall('ZREMRANGEBYRANK', deleted, 0, -MAX_REMEMBERED - 1)
  emit('service', service, 'ServiceDeleted', service, '', '', 'its pods are being stopped')
  redis.call('PUBLISH', 'wake:reconcile', service)
end
return { 'OK' }

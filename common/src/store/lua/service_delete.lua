-- Marks a service as deleted. The reconcile loop stops its pods, then forgets it.
-- Reply: {'OK'} (also if it is being deleted already) | {'MISSING'} | {'CONFLICT', revision}
local service_key, unconfirmed = head_keys()
-- The expected revision is '' if any is right.
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
    'revision', revision + 1, 'revised_by', write, 'write', write)
  emit('service', service, 'ServiceDeleted', service, '', '', 'its pods are being stopped')
  redis.call('PUBLISH', 'wake:reconcile', service)
end
return { 'OK' }

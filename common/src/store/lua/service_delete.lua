-- Says that a service is not wanted any more. Reconcile stops its pods, then forgets it.
-- KEYS: events, meta, service:<name>
-- ARGV: name
-- Reply: 'OK' | 'MISSING'; deleting what is being deleted is OK
local state = redis.call('HGET', KEYS[3], 'state')
if not state then return 'MISSING' end
if state ~= 'deleting' then
  redis.call('HSET', KEYS[3], 'state', 'deleting', 'replicas', 0, 'updated_at', STAMP)
  emit('service', ARGV[1], 'ServiceDeleted', ARGV[1], '', '', 'its pods are being stopped')
  redis.call('PUBLISH', 'wake:reconcile', ARGV[1])
end
return 'OK'

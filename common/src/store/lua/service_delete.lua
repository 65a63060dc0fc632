-- Says that a service is not wanted any more. Reconcile stops its pods, then forgets it.
-- KEYS: events, meta, service:<name>, unconfirmed
-- ARGV: name, id of this write
-- Reply: 'OK' | 'MISSING'; deleting what is being deleted is OK
local state = redis.call('HGET', KEYS[3], 'state')
if not state then return 'MISSING' end
note_unconfirmed(KEYS[4], ARGV[1], ARGV[2])
if state ~= 'deleting' then
  redis.call('HSET', KEYS[3], 'state', 'deleting', 'replicas', 0, 'updated_at', STAMP, 'write', ARGV[2])
  emit('service', ARGV[1], 'ServiceDeleted', ARGV[1], '', '', 'its pods are being stopped')
  redis.call('PUBLISH', 'wake:reconcile', ARGV[1])
end
return 'OK'

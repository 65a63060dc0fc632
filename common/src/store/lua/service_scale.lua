-- Changes how many pods a service shall have, and nothing else.
-- KEYS: events, meta, service:<name>, unconfirmed
-- ARGV: name, replicas, id of this write
-- Reply: {'OK', replicas before} | {'MISSING'} | {'DELETING'}
local name, replicas, write = unpack(ARGV)
local found = redis.call('HMGET', KEYS[3], 'state', 'replicas')
if not found[1] then return { 'MISSING' } end
if found[1] == 'deleting' then return { 'DELETING' } end
note_unconfirmed(KEYS[4], name, write)
if found[2] ~= replicas then
  redis.call('HSET', KEYS[3], 'replicas', replicas, 'updated_at', STAMP, 'write', write)
  emit('service', name, 'ServiceScaled', name, '', '', replicas .. ' pods are wanted, before it was ' .. found[2])
  redis.call('PUBLISH', 'wake:reconcile', name)
end
return { 'OK', tonumber(found[2]) }

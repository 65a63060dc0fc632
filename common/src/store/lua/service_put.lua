-- Stores what somebody wants of a service.
-- KEYS: events, meta, service:<name>, services, spec:<id>, unconfirmed
-- ARGV: name, mode (create | replace | upsert), spec id, spec, replicas, labels, generation expected or '', id of this write
-- Reply: {'CREATED', time ms} | {'REPLACED'|'SCALED'|'UNCHANGED', generation} | {'EXISTS'} | {'MISSING'} | {'DELETING'} | {'CONFLICT', generation}
local name, mode, spec_id, spec, replicas, labels, expected, write = unpack(ARGV)
local found = redis.call('HMGET', KEYS[3], 'state', 'generation', 'spec', 'replicas', 'labels', 'spec_text')
redis.call('SCARD', KEYS[4])
local generation = tonumber(found[2]) or 0

if found[1] == 'deleting' then return { 'DELETING' } end
if found[1] and mode == 'create' then return { 'EXISTS' } end
if not found[1] and mode == 'replace' then return { 'MISSING' } end
if expected ~= '' and tonumber(expected) ~= generation then return { 'CONFLICT', generation } end
note_unconfirmed(KEYS[6], name, write)

if not found[1] then
  redis.call('SET', KEYS[5], spec)
  redis.call('HSET', KEYS[3], 'name', name, 'state', 'active', 'generation', 1, 'spec', spec_id, 'spec_text', spec,
    'replicas', replicas, 'labels', labels, 'created_at', STAMP, 'updated_at', STAMP, 'write', write)
  redis.call('SADD', KEYS[4], name)
  emit('service', name, 'ServiceCreated', name, '', '', replicas .. ' pods are wanted')
  -- Whoever creates a service makes its pods as well: no reason to look at once.
  redis.call('PUBLISH', 'wake:reconcile', 'created ' .. name)
  return { 'CREATED', NOW }
end

if found[6] == spec and found[4] == replicas and found[5] == labels then return { 'UNCHANGED', generation } end
if found[6] == spec then
  redis.call('HSET', KEYS[3], 'replicas', replicas, 'labels', labels, 'updated_at', STAMP, 'write', write)
  emit('service', name, 'ServiceScaled', name, '', '', replicas .. ' pods are wanted, before it was ' .. found[4])
  redis.call('PUBLISH', 'wake:reconcile', name)
  return { 'SCALED', generation }
end
generation = generation + 1
redis.call('SET', KEYS[5], spec)
redis.call('HSET', KEYS[3], 'generation', generation, 'spec', spec_id, 'spec_text', spec, 'replicas', replicas,
  'labels', labels, 'updated_at', STAMP, 'write', write)
emit('service', name, 'ServiceReplaced', name, '', '', 'generation ' .. generation .. ', ' .. replicas .. ' pods are wanted')
redis.call('PUBLISH', 'wake:reconcile', name)
return { 'REPLACED', generation }

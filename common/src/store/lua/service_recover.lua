-- Stores a service again as a worker or a backup knows it, unless Redis has the same or a newer revision.
-- Reply: {'RECOVERED'} | {'PRESENT'}
local service_key, services, unconfirmed, former_specs = head_keys()
local service, saved_revision, write = head_args()
local current_spec = redis.call('HGET', service_key, 'spec')
local _, revision = versions_of(service_key)
redis.call('SCARD', services)
redis.call('SCARD', former_specs)
redis.call('HLEN', unconfirmed)
if redis.call('EXISTS', service_key) == 1 and revision >= (tonumber(saved_revision) or 0) then
  return { 'PRESENT' }
end

note_unconfirmed(unconfirmed, service, write)
for f = 1, field_count do
  local field, value = field_args(f)
  redis.call('HSET', service_key, field, value)
end
redis.call('HSET', service_key, 'revision', saved_revision, 'revised_by', write, 'write', write)
redis.call('SADD', services, service)
reuse_spec(former_specs, redis.call('HGET', service_key, 'spec') or '', write)
-- The replaced specification expires when no pod names it any more.
if current_spec and current_spec ~= redis.call('HGET', service_key, 'spec') then
  redis.call('SADD', former_specs, current_spec)
end
emit('service', service, 'ServiceRecovered', service, '', '', 'stored again, in revision ' .. saved_revision)
redis.call('PUBLISH', 'wake:reconcile', service)
return { 'RECOVERED' }

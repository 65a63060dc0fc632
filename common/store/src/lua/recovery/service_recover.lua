-- Stores a service of a worker or a backup, unless Redis has the same or a newer revision.
-- Reply: {'RECOVERED'} | {'PRESENT'}
local service_key, services, unconfirmed, former_specs, routes, relations, done, tries, deleted = head_keys()
local _, _, service, saved_revision, write = head_args()
local current_spec, current_routes, current_created_at, current_related =
  unpack(redis.call('HMGET', service_key, 'spec', 'routes', 'created_at', 'related'), 1, 4)
local _, revision = versions_of(service_key)
redis.call('SCARD', services)
redis.call('SCARD', former_specs)
redis.call('HLEN', unconfirmed)
redis.call('HLEN', routes)
redis.call('HLEN', relations)
redis.call('HLEN', done)
redis.call('HLEN', tries)
if redis.call('EXISTS', service_key) == 1 and revision >= (tonumber(saved_revision) or 0) then
  return { 'PRESENT' }
end

note_unconfirmed(unconfirmed, service, write)
for f = 1, field_count do
  local field, value = field_args(f)
  redis.call('HSET', service_key, field, value)
end
redis.call('HSET', service_key, 'revision', saved_revision, 'write', write)
redis.call('SADD', services, service)
-- What a person has recovered does not expire with the rest.
redis.call('PERSIST', service_key)
redis.call('PERSIST', services)
-- It is wanted now, although it was deleted.
redis.pcall('ZREM', deleted, service)
-- With the job itself, so that no complete index runs again. Entries of another job of this name go.
if current_created_at ~= redis.call('HGET', service_key, 'created_at') then redis.call('DEL', done, tries) end
for c = 1, completion_count do
  local index, result = completion_args(c)
  redis.call('HSETNX', done, index, result)
end
for f = 1, failure_count do
  local index, result = failure_args(f)
  redis.call('HSETNX', tries, index, result)
end
-- A route that another service got meanwhile stays there; `cluster check` says so.
write_routes(routes, services, service, current_routes or '', redis.call('HGET', service_key, 'routes') or '')
write_relations(relations, service, current_related or '', redis.call('HGET', service_key, 'related') or '')
reuse_spec(former_specs, redis.call('HGET', service_key, 'spec') or '', write)
if current_spec and current_spec ~= redis.call('HGET', service_key, 'spec') then
  redis.call('SADD', former_specs, current_spec)
end
emit('service', service, 'ServiceRecovered', service, '', '', 'stored again, in revision ' .. saved_revision)
redis.call('PUBLISH', 'wake:reconcile', service)
return { 'RECOVERED' }

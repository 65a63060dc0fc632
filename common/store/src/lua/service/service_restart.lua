-- Replaces all pods of a service: a new generation with the same specification under a new id.
-- Reply: {'OK', generation} | {'DONE', generation} (it was created or restarted after `since`) | {'MISSING'}
--        | {'DELETING'} | {'CONFLICT', revision}
--        | {'KIND', what it is} (the pods of a job are not replaced, a cron has none)
local service_key, spec_key, unconfirmed, former_specs, history = head_keys()
-- `since` is '' if the pods are replaced in any case. `cause` is told in the event, or ''.
local service, spec, expected_revision, write, since, cause = head_args()
local state, current_spec, spec_text, fingerprint, created_at, restarted_at = unpack(
  redis.call('HMGET', service_key, 'state', 'spec', 'spec_text', 'fingerprint', 'created_at', 'restarted_at'), 1, 6)
local generation, revision = versions_of(service_key)
redis.call('SCARD', former_specs)
if not state then return { 'MISSING' } end
if state == 'deleting' then return { 'DELETING' } end
local kind = redis.call('HGET', service_key, 'kind')
if kind and kind ~= 'global' then return { 'KIND', kind } end
if expected_revision ~= '' and tonumber(expected_revision) ~= revision then
  return { 'CONFLICT', revision }
end
local function is_later(time)
  time = tonumber(time)
  return time and time > tonumber(since) and time <= NOW
end
if since ~= '' and (is_later(created_at) or is_later(restarted_at)) then return { 'DONE', generation } end
-- The images may change, so there is something to go back to.
local has_images = redis.call('HEXISTS', service_key, 'images:' .. (current_spec or '')) == 1
if has_images and is_error(redis.pcall('HLEN', history), 'WRONGTYPE') then set_aside(history) end
note_unconfirmed(unconfirmed, service, write)
if has_images then note_former(service_key, history, former_specs, { spec = spec, failure = '' }) end
generation = generation + 1
redis.call('SET', spec_key, spec_text or '')
if current_spec then redis.call('SADD', former_specs, current_spec) end
-- So that a later PUT of the same specification changes nothing.
local before = (current_spec or '') .. ' '
if fingerprint and string.sub(fingerprint, 1, #before) == before then
  redis.call('HSET', service_key, 'fingerprint', spec .. ' ' .. string.sub(fingerprint, #before + 1))
end
redis.call('HSET', service_key, 'generation', generation, 'spec', spec, 'updated_at', STAMP,
  'restarted_at', STAMP,
  'revision', revision + 1, 'write', write)
emit('service', service, 'ServiceRestarted', service, '', '',
  'generation ' .. generation .. ' with the same specification: its pods are replaced' .. cause)
redis.call('PUBLISH', 'wake:reconcile', service)
return { 'OK', generation }

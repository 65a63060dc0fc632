-- Stores the desired state of a service.
-- Reply: {'CREATED', time ms} | {'REPLACED' | 'SCALED' | 'UNCHANGED', generation} | {'EXISTS'} | {'MISSING'}
--        | {'DELETING'} | {'CONFLICT', revision} | {'ROUTE', route, the other service that has it}
--        | {'KIND', what it is} (a service stays what it is)
--        | {'IMMUTABLE'} (the pods of a job are not replaced)
--        | {'CHANGED'} (its fields are not `seen_fields`: read them again)
local service_key, services, spec_key, unconfirmed, former_specs, routes, relations, history, done, tries =
  head_keys()
-- The mode is 'create', 'replace' or 'upsert'. '' expects no revision. Texts of equal meaning have equal
-- fingerprints. `fields` is JSON that is only stored; `change` says how it differs from `seen_fields`, or ''.
-- Derived from it: `app`; `kind` ('', 'job', 'cron' or 'global'); `times`, when a cron is due, '' while
-- suspended; `routes_text`; `related`, names of services. `failure` is '', or why the replaced generation has
-- failed. `undone` is '1' if a user goes back.
local service, mode, spec, spec_text, fingerprint, replicas, fields, seen_fields, change, app, kind, times,
  failure, undone, routes_text, related, expected_revision, write = head_args()
local state, current_replicas, current_fields, current_text, current_spec, current_fingerprint = unpack(
  redis.call('HMGET', service_key, 'state', 'replicas', 'fields', 'spec_text', 'spec', 'fingerprint'), 1, 6)
local current_routes, current_kind, current_times, current_related = unpack(
  redis.call('HMGET', service_key, 'routes', 'kind', 'times', 'related'), 1, 4)
current_replicas, current_fields = current_replicas or '0', current_fields or ''
current_routes, current_kind, current_times = current_routes or '', current_kind or '', current_times or ''
current_related = current_related or ''
-- Its nodes say how many: see `members_put`.
if state and kind == 'global' then replicas = current_replicas end
local generation, revision = versions_of(service_key)
redis.call('SCARD', services)
redis.call('SCARD', former_specs)
local is_same = current_text == spec_text or current_fingerprint == (current_spec or '') .. ' ' .. fingerprint
-- A former specification returns under its id, with the images pinned there, even if only these differ.
local goes_back = undone == '1' or failure ~= ''
if goes_back and spec ~= current_spec then is_same = false end

if state == 'deleting' then return { 'DELETING' } end
if state and mode == 'create' then return { 'EXISTS' } end
if not state and mode == 'replace' then return { 'MISSING' } end
if expected_revision ~= '' and tonumber(expected_revision) ~= revision then
  return { 'CONFLICT', revision }
end
if state and kind ~= current_kind then return { 'KIND', current_kind } end
if state and kind == 'job' and (not is_same or current_replicas ~= replicas) then return { 'IMMUTABLE' } end
local taken, other = taken_route(routes, services, service, routes_text)
if not taken and not state and app ~= '' then taken, other = alias_in_the_way(routes, services, app, service) end
if taken then return { 'ROUTE', taken, other } end
if state and current_fields ~= seen_fields then return { 'CHANGED' } end
if current_routes ~= '' then redis.call('HLEN', routes) end
if current_related ~= related then redis.call('HLEN', relations) end
if is_same and tonumber(replicas) <= (tonumber(current_replicas) or 0) and #fields <= #current_fields
  and #routes_text <= #current_routes and #related <= #current_related and #times <= #current_times then allow_at_maxmemory() end
-- The history only informs: a key of another type stops no change.
if state and not is_same and is_error(redis.pcall('HLEN', history), 'WRONGTYPE') then set_aside(history) end
note_unconfirmed(unconfirmed, service, write)

local function store(...)
  redis.call('HSET', service_key, 'replicas', replicas, 'fields', fields, 'updated_at', STAMP,
    'revision', revision + 1, 'write', write, ...)
  set_or_delete(service_key, 'kind', kind)
  set_or_delete(service_key, 'times', times)
  -- Ticks of a former schedule or of a suspension are not made up.
  if times ~= current_times then set_or_delete(service_key, 'times_since', times ~= '' and STAMP or '') end
  set_or_delete(service_key, 'routes', routes_text)
  if routes_text ~= current_routes then write_routes(routes, services, service, current_routes, routes_text) end
  set_or_delete(service_key, 'related', related)
  if related ~= current_related then write_relations(relations, service, current_related, related) end
end
-- The number now comes from a description, not from `scale`.
if state and replicas ~= current_replicas then redis.call('HDEL', service_key, 'scaled_at') end
local function pods_wanted()
  if kind == 'global' then return 'a pod wanted on each eligible node' end
  return replicas .. (replicas == '1' and ' pod wanted' or ' pods wanted')
end
if not state then
  redis.call('SET', spec_key, spec_text)
  reuse_spec(former_specs, spec, write)
  -- Left of a service of this name whose record was removed by hand.
  redis.call('DEL', history, done, tries)
  store('name', service, 'state', 'active', 'generation', 1, 'spec', spec, 'spec_text', spec_text,
    'fingerprint', spec .. ' ' .. fingerprint, 'created_at', STAMP)
  redis.call('SADD', services, service)
  emit('service', service, 'ServiceCreated', service, '', '', kind == 'cron' and 'a job at each of its times' or pods_wanted())
  -- The creator also creates the pods.
  redis.call('PUBLISH', 'wake:reconcile', 'created ' .. service)
  return { 'CREATED', NOW }
end

if is_same then
  if current_replicas ~= replicas then
    change = 'scaled from ' .. current_replicas .. ' to ' .. replicas
  elseif change == '' and current_routes ~= routes_text then
    change = 'its routes changed'
  end
  if change == '' then return { 'UNCHANGED', generation } end
  store()
  if fields ~= current_fields then wake_schedulers() end
  emit('service', service, 'ServiceScaled', service, '', '', change)
  redis.call('PUBLISH', 'wake:reconcile', service)
  return { 'SCALED', generation }
end
-- A user's description means its images as of now, unless pods with it still run.
if not goes_back and spec ~= current_spec and redis.call('SISMEMBER', former_specs, spec) == 0 then
  redis.call('HDEL', service_key, 'images:' .. spec)
end
note_former(service_key, history, former_specs,
  { spec = spec, text = spec_text, fingerprint = fingerprint, failure = failure })
generation = generation + 1
-- The id is a hash of the content: pods may still have it from before.
redis.call('SET', spec_key, spec_text)
reuse_spec(former_specs, spec, write)
-- Expires when no pod names it any more.
if current_spec and current_spec ~= spec then redis.call('SADD', former_specs, current_spec) end
if fields ~= current_fields then wake_schedulers() end
store('generation', generation, 'spec', spec, 'spec_text', spec_text, 'fingerprint', spec .. ' ' .. fingerprint)
if undone == '1' then
  redis.call('HSET', service_key, 'undone', string.format('%.0f %.0f', generation, generation - 1))
  redis.call('HDEL', service_key, 'paused_by_hand')
end
if failure == '' then
  emit('service', service, 'ServiceUpdated', service, '', '',
    'generation ' .. generation .. ', ' .. pods_wanted())
else
  redis.call('HSET', service_key, 'rolled_back', string.format('%.0f', generation - 1) .. ' ' .. failure)
  emit('service', service, 'ServiceRolledBack', service, '', '',
    'generation ' .. generation .. ' takes generation ' .. generation - 1 .. ' back: ' .. failure)
end
redis.call('PUBLISH', 'wake:reconcile', service)
return { 'REPLACED', generation }

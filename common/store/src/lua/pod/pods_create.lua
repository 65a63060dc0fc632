-- Creates pods in free slots of a service. Taken slots stay as they are, so any number of callers create each
-- pod once.
-- Reply: {'OK', number of pods that were created}
--        | {'CHANGED'} (the service has changed, or another step of replacing its pods was taken: read it
--          again)
--        | {'UNCONFIRMED'} (it is a job of a cron whose replicas have not confirmed it yet: a failover might
--          lose the tick, and it would run again)
local service_key, slots, sq, done, unconfirmed = head_keys()
-- `last_write` is the required last write of the service, or ''. `is_second` is '1' for successors in second
-- places. `step` is the step that the caller has seen; the first pods of a job come in the round trip of the
-- job, without one.
local service, spec, generation, image, last_write, is_second, step = head_args()
local current_spec, state, replicas, current_write, kind, ended_at, of_cron, created_at = unpack(redis.call('HMGET',
  service_key, 'spec', 'state', 'replicas', 'write', 'kind', 'ended_at', 'of_cron', 'created_at'), 1, 8)
redis.call('HLEN', slots)
redis.call('LLEN', sq)
if current_spec ~= spec or state ~= 'active' then return { 'CHANGED' } end
if last_write ~= '' and current_write ~= last_write then return { 'CHANGED' } end
if pod_count == 0 then return { 'OK', 0 } end
local is_job = kind == 'job'
if is_job then
  redis.call('HLEN', done)
  redis.call('HLEN', unconfirmed)
end
if is_job and ended_at then return { 'CHANGED' } end
-- Bounded: a replica may be down for long.
local CONFIRM_MS = 10000
local is_young = not is_no_past(created_at) and NOW - tonumber(created_at) < CONFIRM_MS
if is_job and of_cron and is_young and redis.call('HEXISTS', unconfirmed, service) == 1 then
  return { 'UNCONFIRMED' }
end

is_second = is_second == '1'
local place = is_second and '+' or ''
local asked = {}
for p = 1, pod_count do
  local replica = pod_args(p)
  asked[p] = replica .. place
end
local holders = redis.call('HMGET', slots, unpack(asked))
local wanted = tonumber(replicas)
-- Scaled down meanwhile. Callers create in order, so none of the rest is wanted either.
do
  local replica = pod_args(1)
  if tonumber(replica) >= wanted then return { 'CHANGED' } end
end
local is_step = is_second or (is_job and last_write == '')
if is_step and not take_step(service_key, step) then return { 'CHANGED' } end
-- A time in the future was written by a former master.
if is_job and is_no_past(redis.call('HGET', service_key, 'started_at')) then
  redis.call('HSET', service_key, 'started_at', STAMP)
end

local queue, new_slots, taken, created, template = {}, {}, {}, batch_event('PodCreated', 'pending'), nil
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local replica, payload = pod_args(p)
  local is_free = not holders[p] and not taken[replica]
  if is_job and is_free then is_free = redis.call('HEXISTS', done, replica) == 0 end
  -- If the first place is free by now, the pod goes there at the next look.
  if is_free and is_second then is_free = redis.call('HEXISTS', slots, replica) == 1 end
  if is_free and tonumber(replica) < wanted then
    local uuid = uuid_of(pod_key)
    taken[replica] = true
    new_slots[#new_slots + 1], new_slots[#new_slots + 2] = replica .. place, uuid
    -- COPY of the first record is half the work, and a fraction of the bytes in the AOF and to the replicas.
    if template and redis.call('COPY', template, pod_key) == 1 then
      redis.call('HSET', pod_key, 'replica', replica)
    else
      -- Redis searches the fields in order: the most read come first.
      redis.call('HSET', pod_key, 'phase', 'pending', 'since', STAMP, 'node', '', 'assignment', '',
        'attempts', '0', 'reason', '')
      set_resources(pod_key, head_resources())
      redis.call('HSET', pod_key, 'replica', replica, 'name', service, 'image', image, 'service', service,
        'spec', spec, 'generation', generation, 'created_at', STAMP)
    end
    template = template or pod_key
    queue[#queue + 1] = payload
    add(created, uuid, service, '', 'replica ' .. replica .. ' waits for a node')
  end
end
if #queue > 0 then
  redis.call('HSET', slots, unpack(new_slots))
  redis.call('LPUSH', sq, unpack(queue))
  emit_batch(created)
end
return { 'OK', #queue }

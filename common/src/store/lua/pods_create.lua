-- Creates pods of a service: takes a free slot, creates the record, queues the payload. A taken slot is left
-- alone, so that any number of callers, in any order and any number of times, create each pod once.
-- Reply: {'OK', number of pods that were created} | {'CHANGED'} (the service has changed, or another step of replacing
--        its pods was taken: read it again)
local service_key, slots, sq = head_keys()
-- `last_write` is the write that the service must have been changed by last, or '' if any is right.
-- `is_second` is '1' for successors, in the second places of replicas whose first ones are taken. `step` is then the
-- step of replacement that the caller has seen.
local service, spec, generation, image, last_write, is_second, step = head_args()
local current_spec, state, replicas, current_write =
  unpack(redis.call('HMGET', service_key, 'spec', 'state', 'replicas', 'write'), 1, 4)
redis.call('HLEN', slots)
redis.call('LLEN', sq)
if current_spec ~= spec or state ~= 'active' then return { 'CHANGED' } end
if last_write ~= '' and current_write ~= last_write then return { 'CHANGED' } end
if pod_count == 0 then return { 'OK', 0 } end

is_second = is_second == '1'
local place = is_second and '+' or ''
local asked = {}
for p = 1, pod_count do
  local replica = pod_args(p)
  asked[p] = replica .. place
end
local holders = redis.call('HMGET', slots, unpack(asked))
local wanted = tonumber(replicas)
if is_second and not take_step(service_key, step) then return { 'CHANGED' } end

local queue, new_slots, taken, created, template = {}, {}, {}, batch_event('PodCreated', 'pending'), nil
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local replica, uuid, payload = pod_args(p)
  local is_free = not holders[p] and not taken[replica]
  -- One whose first place has become free gets its pod there, at the next look.
  if is_free and is_second then is_free = redis.call('HEXISTS', slots, replica) == 1 end
  if is_free and tonumber(replica) < wanted then
    taken[replica] = true
    new_slots[#new_slots + 1], new_slots[#new_slots + 2] = replica .. place, uuid
    -- Copying the first record is half the work of writing each, and a fraction of the bytes in the
    -- append-only file and to the replicas.
    if template and redis.call('COPY', template, pod_key) == 1 then
      redis.call('HSET', pod_key, 'replica', replica)
    else
      redis.call('HSET', pod_key, 'phase', 'pending', 'since', STAMP, 'replica', replica, 'name', service,
        'image', image, 'service', service, 'spec', spec, 'generation', generation, 'created_at', STAMP)
      set_resources(pod_key, head_resources())
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

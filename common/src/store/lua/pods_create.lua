-- Creates pods of a service: takes a free slot, creates the record, queues the payload. A taken slot is left
-- alone, so that any number of callers, in any order and any number of times, create each pod once.
-- Reply: {'OK', number of pods that were created} | {'CHANGED'} (the service has changed: read it again)
local service_key, slots, sq = head_keys()
-- `last_write` is the write that the service must have been changed by last, or '' if any is right.
local service, spec, generation, image, last_write = head_args()
local current_spec, state, replicas, current_write =
  unpack(redis.call('HMGET', service_key, 'spec', 'state', 'replicas', 'write'), 1, 4)
redis.call('HLEN', slots)
redis.call('LLEN', sq)
if current_spec ~= spec or state ~= 'active' then return { 'CHANGED' } end
if last_write ~= '' and current_write ~= last_write then return { 'CHANGED' } end
if pod_count == 0 then return { 'OK', 0 } end

local asked = {}
for p = 1, pod_count do
  local replica = pod_args(p)
  asked[p] = replica
end
local holders = redis.call('HMGET', slots, unpack(asked))
local wanted = tonumber(replicas)

local queue, new_slots, taken, created, template = {}, {}, {}, batch_event('PodCreated', 'pending'), nil
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local replica, uuid, payload = pod_args(p)
  if tonumber(replica) < wanted and not holders[p] and not taken[replica] then
    taken[replica] = true
    new_slots[#new_slots + 1], new_slots[#new_slots + 2] = replica, uuid
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

-- Makes pods of a service: takes a free slot, makes the record, queues the payload. A taken slot is left alone,
-- so that any number of creators, in any order, any number of times, make each pod once.
-- KEYS: events, meta, service:<name>, slots:<name>, sq, then pod:<uuid> for each
-- ARGV: name, spec id, generation, image, cpu, memory, then (replica, uuid, payload) for each
-- Reply: {'OK', how many were made} | {'CHANGED'} (the service is another one by now: reread)
local name, spec_id, generation, image, cpu, memory = unpack(ARGV, 1, 6)
local service = redis.call('HMGET', KEYS[3], 'spec', 'state', 'replicas')
redis.call('HLEN', KEYS[4])
redis.call('LLEN', KEYS[5])
if service[1] ~= spec_id or service[2] ~= 'active' then return { 'CHANGED' } end
local wanted = tonumber(service[3])

local asked = {}
for i = 6, #KEYS do asked[#asked + 1] = ARGV[7 + (i - 6) * 3] end
if #asked == 0 then return { 'OK', 0 } end
local holders = redis.call('HMGET', KEYS[4], unpack(asked))

local queue, slots, taken, created, like = {}, {}, {}, story('PodCreated', 'pending'), nil
for i = 6, #KEYS do
  local at = 7 + (i - 6) * 3
  local replica, uuid, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if tonumber(replica) < wanted and not holders[i - 5] and not taken[replica] then
    taken[replica] = true
    slots[#slots + 1], slots[#slots + 2] = replica, uuid
    -- Made once and copied: that is half the work, and a fraction of what the log of writes and the replicas are told.
    if like and redis.call('COPY', like, KEYS[i]) == 1 then
      redis.call('HSET', KEYS[i], 'replica', replica)
    else
      redis.call('HSET', KEYS[i], 'phase', 'pending', 'since', STAMP, 'cpu', cpu, 'memory', memory, 'replica', replica,
        'name', name, 'image', image, 'service', name, 'spec', spec_id, 'generation', generation, 'created_at', STAMP)
    end
    like = like or KEYS[i]
    queue[#queue + 1] = payload
    tell(created, uuid, name, '', 'replica ' .. replica .. ' waits for a node')
  end
end
if #queue > 0 then
  redis.call('HSET', KEYS[4], unpack(slots))
  redis.call('LPUSH', KEYS[5], unpack(queue))
  emit_story(created)
end
return { 'OK', #queue }

-- Believes a guest's container set: what stands there runs there.
-- KEYS: events, meta, node:<n>, cs:<n>, pushed, then pod:<uuid> for each
-- ARGV: node, then (payload, uuid, fresh assignment, name, image, replica) for each
-- Reply: how many pods are new to us as running
local name = ARGV[1]
local FIELDS = 6
local node = redis.call('HMGET', KEYS[3], 'kind', 'state')
redis.call('SCARD', KEYS[4])
redis.call('SCARD', KEYS[5])
if node[1] ~= 'guest' or node[2] ~= 'alive' then return 0 end
for p = 1, #KEYS - 5 do redis.call('HLEN', KEYS[5 + p]) end

local found = 0
for p = 1, #KEYS - 5 do
  local at = 1 + (p - 1) * FIELDS
  local payload, uuid, fresh, pod_name, image, replica = unpack(ARGV, at + 1, at + FIELDS)
  local pod_key = KEYS[5 + p]
  -- Read again: the same uuid may stand twice in the set, in other words.
  local phase, holder = unpack(redis.call('HMGET', pod_key, 'phase', 'node'), 1, 2)
  if redis.call('SISMEMBER', KEYS[4], payload) == 1 then
    if not phase then
      redis.call('HSET', pod_key, 'name', pod_name, 'replica', replica, 'image', image, 'generation', 0, 'node', name,
        'assignment', fresh, 'cpu', 0, 'memory', 0, 'created_at', STAMP, 'payload', payload)
      redis.call('SADD', KEYS[5], uuid)
      redis.call('HINCRBY', KEYS[3], 'used_pods', 1)
    end
    if not phase or (phase == 'assigned' and holder == name) then
      redis.call('HSET', pod_key, 'phase', 'running', 'since', STAMP)
      emit('pod', uuid, 'PodStarted', pod_name, name, 'running', 'runs on the guest ' .. name)
      found = found + 1
    end
  end
end
return found

-- Records pods of a worker or a backup that Redis does not know: record, slot and container set.
-- Reply: for each pod 'recovered' | 'present' (it has a record) | 'taken' (another pod has its slot)
local wanted_key, sq, ep_key = head_keys()
local service = head_args()
check_wanted_type(wanted_key)
redis.call('LLEN', sq)
local states = {}
for p = 1, pod_count do
  local pod_key, node_key, cs = pod_keys(p)
  redis.call('HLEN', pod_key)
  redis.call('SCARD', cs)
  states[p] = redis.call('HGET', node_key, 'state')
end

local replies = {}
local running, waiting = batch_event('PodRecovered', 'running'), batch_event('PodRecovered', 'pending')
for p = 1, pod_count do
  local pod_key, node_key, cs = pod_keys(p)
  -- Node and assignment are '' for a pod that waits for a node; created_at is 0 if unknown.
  local uuid, payload, node, assignment, phase, name, image, replica, spec, generation, restarts, address,
    published, created_at, runs, slot, ids = pod_args(p)
  local holder = service ~= '' and redis.call('HGET', wanted_key, slot)
  if redis.call('EXISTS', pod_key) == 1 then
    replies[p] = 'present'
  elseif holder and holder ~= uuid then
    replies[p] = 'taken'
  else
    -- The pods of a dead node are being moved.
    if phase == 'running' and states[p] == 'dead' then phase = 'pending' end
    redis.call('HSET', pod_key, 'phase', phase, 'since', STAMP, 'name', name, 'image', image,
      'replica', replica, 'generation', generation, 'created_at', created_at == '0' and STAMP or created_at,
      'attempts', 0)
    if restarts ~= '0' then redis.call('HSET', pod_key, 'restarts', restarts) end
    set_resources(pod_key, pod_resources(p))
    if phase ~= 'pending' and node ~= '' then
      redis.call('HSET', pod_key, 'node', node, 'assignment', assignment)
    end
    if runs ~= '' then redis.call('HSET', pod_key, 'runs', runs) end
    if address ~= '' then redis.call('HSET', pod_key, 'address', address) end
    if published ~= '' then redis.call('HSET', pod_key, 'published', published) end
    if service ~= '' then
      redis.call('HSET', pod_key, 'service', service, 'spec', spec)
      redis.call('HSET', wanted_key, slot, uuid)
    else
      redis.call('HSET', pod_key, 'payload', payload)
      redis.call('SADD', wanted_key, uuid)
    end
    if phase == 'running' then
      redis.call('SADD', cs, payload)
      redis.call('PERSIST', cs)
      reserve(node_key, 1, pod_resources(p))
      if ids ~= '' then reserve_ids(node_key, pod_key, uuid, name, ids) end
      add(running, uuid, name, node, 'recorded again: it runs on ' .. node)
    elseif phase == 'pending' then
      redis.call('LPUSH', sq, payload)
      add(waiting, uuid, name, '', 'recorded again: it waits for a node')
    end
    endpoint(ep_key, pod_key, uuid)
    replies[p] = 'recovered'
  end
end
-- What a person has recovered does not expire with the rest.
redis.call('PERSIST', wanted_key)
emit_batch(running)
emit_batch(waiting)
publish_endpoints()
return replies

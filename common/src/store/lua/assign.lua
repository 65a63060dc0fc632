-- Gives pods to nodes: node check, resources, record and queue in one step. Invariants 2, 3, 9.
-- KEYS: events, meta, fq:<scheduler>, pushed, then (node:<n>, pq:<n>) for each node, then pod:<uuid> for each pod
-- ARGV: how many nodes, dead_after ms, then (name, how many pods the scheduler believes it has or '') for each node,
--       then for each pod
--       (uuid, payload, node index from 1, incarnation seen or '', assignment, cpu, memory, name, image, replica, belongs to a service 0|1)
-- Reply: for each pod 'ok' | 'stale' (nobody waits for it: dropped) | 'gone' (not in this scheduler's hands any more)
--        | 'orphan' (its service does not know it: still in the scheduler's hands, reject it)
--        | 'not_ready' | 'cordoned' | 'engine' | 'full' | 'crowded' (the node refuses, or has more pods than the scheduler
--        believes: it is still in the scheduler's hands)
local node_count, dead_after = tonumber(ARGV[1]), tonumber(ARGV[2])
local first_pod = 4 + 2 * node_count
local pod_count = #KEYS - first_pod
local FIELDS = 11

local nodes, pods = {}, {}
redis.call('LLEN', KEYS[3])
redis.call('SCARD', KEYS[4])
for n = 1, node_count do
  local f = redis.call('HMGET', KEYS[3 + 2 * n], 'incarnation', 'state', 'beat', 'cordoned', 'engine_problem', 'cpu',
    'memory', 'pods', 'used_cpu', 'used_memory', 'used_pods')
  redis.call('LLEN', KEYS[4 + 2 * n])
  local node = { name = ARGV[1 + 2 * n], incarnation = f[1] or '', free_cpu = (tonumber(f[6]) or 0) - (tonumber(f[9]) or 0),
    free_memory = (tonumber(f[7]) or 0) - (tonumber(f[10]) or 0), free_pods = (tonumber(f[8]) or 0) - (tonumber(f[11]) or 0),
    cpu = 0, memory = 0, pods = 0, queue = {} }
  if f[2] ~= 'alive' or NOW - (tonumber(f[3]) or 0) > dead_after then node.refusal = 'not_ready'
  elseif f[4] == '1' then node.refusal = 'cordoned'
  elseif f[5] and f[5] ~= '' then node.refusal = 'engine'
  elseif (tonumber(f[11]) or 0) > (tonumber(ARGV[2 + 2 * n]) or math.huge) then node.refusal = 'crowded' end
  nodes[n] = node
end
for p = 1, pod_count do pods[p] = redis.call('HMGET', KEYS[first_pod + p], 'phase', 'node') end

-- The same uuid twice in one batch is one pod: the second copy is stale.
local replies, taken = {}, {}
for p = 1, pod_count do
  local at = 2 + 2 * node_count + (p - 1) * FIELDS
  local uuid, payload, node_index, incarnation, assignment, cpu, memory, name, image, replica, serviced =
    unpack(ARGV, at + 1, at + FIELDS)
  local node, phase = nodes[tonumber(node_index)], pods[p][1]
  cpu, memory = tonumber(cpu), tonumber(memory)
  local pod_key = KEYS[first_pod + p]
  if taken[pod_key] or (phase and phase ~= 'pending') then
    redis.call('LREM', KEYS[3], -1, payload)
    replies[p] = 'stale'
  elseif not phase and serviced == '1' then
    replies[p] = 'orphan'
  elseif node.refusal then
    replies[p] = node.refusal
  elseif node.incarnation ~= incarnation then
    replies[p] = 'not_ready'
  elseif node.free_pods < 1 or (cpu > 0 and node.free_cpu < cpu) or (memory > 0 and node.free_memory < memory) then
    replies[p] = 'full'
  elseif redis.call('LREM', KEYS[3], -1, payload) == 0 then
    replies[p] = 'gone'
  else
    if not phase then
      redis.call('HSET', pod_key, 'name', name, 'replica', replica, 'image', image, 'generation', 0, 'cpu', cpu,
        'memory', memory, 'created_at', NOW, 'payload', payload)
      redis.call('SADD', KEYS[4], uuid)
    end
    redis.call('HSET', pod_key, 'phase', 'assigned', 'node', node.name, 'assignment', assignment, 'attempts', 0,
      'cpu', cpu, 'memory', memory, 'since', NOW, 'reason', '', 'message', '')
    taken[pod_key] = true
    node.free_cpu, node.free_memory, node.free_pods = node.free_cpu - cpu, node.free_memory - memory, node.free_pods - 1
    node.cpu, node.memory, node.pods = node.cpu + cpu, node.memory + memory, node.pods + 1
    node.queue[#node.queue + 1] = payload
    emit('pod', uuid, 'PodScheduled', name, node.name, 'assigned', 'given to ' .. node.name)
    replies[p] = 'ok'
  end
end

for n = 1, node_count do
  local node, node_key = nodes[n], KEYS[3 + 2 * n]
  if node.pods > 0 then
    redis.call('HINCRBY', node_key, 'used_pods', node.pods)
    if node.cpu > 0 then redis.call('HINCRBY', node_key, 'used_cpu', node.cpu) end
    if node.memory > 0 then redis.call('HINCRBY', node_key, 'used_memory', node.memory) end
    redis.call('LPUSH', KEYS[4 + 2 * n], unpack(node.queue))
  end
end
return replies

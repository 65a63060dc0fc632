-- Gives pods to nodes: node check, resources, record and queue in one step. Invariants 2, 3, 9.
-- KEYS: events, meta, fq:<scheduler>, pushed, then (node:<n>, pq:<n>) for each node, then pod:<uuid> for each pod
-- ARGV: how many nodes, dead_after ms,
--       then (name, incarnation seen or '', how many pods the scheduler believes it has or '') for each node,
--       then for each pod, best in the order in which they stand in the scheduler's hands, oldest first:
--       (uuid, payload, node index from 1, assignment, cpu, memory, name, image, replica, belongs to a service 0|1)
-- Reply: for each pod 'ok' | 'stale' (nobody waits for it: dropped) | 'gone' (not in this scheduler's hands any more)
--        | 'orphan' (its service does not know it: still in the scheduler's hands, reject it)
--        | 'not_ready' | 'cordoned' | 'engine' | 'full' | 'crowded' (the node refuses, or has more pods than the scheduler
--        believes: it is still in the scheduler's hands)
local node_count, dead_after = tonumber(ARGV[1]), tonumber(ARGV[2])
local first_pod = 4 + 2 * node_count
local pod_count = #KEYS - first_pod
local NODE_FIELDS, FIELDS = 3, 10
local first_arg = 2 + NODE_FIELDS * node_count

redis.call('LLEN', KEYS[3])
redis.call('SCARD', KEYS[4])

local function look_at_node(n)
  local at = 2 + (n - 1) * NODE_FIELDS
  local name, seen, believed = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]) or math.huge
  redis.call('LLEN', KEYS[4 + 2 * n])
  local incarnation, state, beat, cordoned, problem, cpu, memory, pods, used_cpu, used_memory, used_pods =
    unpack(redis.call('HMGET', KEYS[3 + 2 * n], 'incarnation', 'state', 'beat', 'cordoned', 'engine_problem', 'cpu',
      'memory', 'pods', 'used_cpu', 'used_memory', 'used_pods'), 1, 11)
  used_pods = tonumber(used_pods) or 0
  local refusal
  if state ~= 'alive' or (incarnation or '') ~= seen or NOW - (tonumber(beat) or 0) > dead_after then refusal = 'not_ready'
  elseif cordoned == '1' then refusal = 'cordoned'
  elseif problem and problem ~= '' then refusal = 'engine'
  elseif used_pods > believed then refusal = 'crowded' end
  return { name = name, refusal = refusal, free_cpu = (tonumber(cpu) or 0) - (tonumber(used_cpu) or 0),
    free_memory = (tonumber(memory) or 0) - (tonumber(used_memory) or 0), free_pods = (tonumber(pods) or 0) - used_pods,
    cpu = 0, memory = 0, pods = 0, queue = {} }
end

local nodes, pods = {}, {}
for n = 1, node_count do nodes[n] = look_at_node(n) end
for p = 1, pod_count do pods[p] = redis.call('HMGET', KEYS[first_pod + p], 'phase', 'cpu', 'memory', 'attempts', 'reason') end

-- Usually these pods are just the oldest in hand, in their order. Then they are cut off in one piece at the end, instead of
-- being looked for one by one.
local oldest, in_order = redis.call('LRANGE', KEYS[3], -pod_count, -1), true
for p = 1, pod_count do
  in_order = in_order and oldest[pod_count + 1 - p] == ARGV[first_arg + (p - 1) * FIELDS + 2]
end
local leave = {}
local function take_out(payload)
  if not in_order then return redis.call('LREM', KEYS[3], -1, payload) == 1 end
  leave[#leave + 1] = payload
  return true
end

-- The same uuid twice in one batch is one pod: the second copy is stale.
local replies, given, scheduled = {}, {}, story('PodScheduled', 'assigned')
for p = 1, pod_count do
  local uuid, payload, node_index, assignment, cpu, memory, name, image, replica, serviced =
    unpack(ARGV, first_arg + (p - 1) * FIELDS + 1, first_arg + p * FIELDS)
  local node, pod_key = nodes[tonumber(node_index)], KEYS[first_pod + p]
  local phase, known_cpu, known_memory, attempts, reason = unpack(pods[p], 1, 5)
  local cpu_wanted, memory_wanted = tonumber(cpu), tonumber(memory)
  if given[pod_key] or (phase and phase ~= 'pending') then
    take_out(payload)
    replies[p] = 'stale'
  elseif not phase and serviced == '1' then
    replies[p] = 'orphan'
  elseif node.refusal then
    replies[p] = node.refusal
  elseif node.free_pods < 1 or (cpu_wanted > 0 and node.free_cpu < cpu_wanted)
    or (memory_wanted > 0 and node.free_memory < memory_wanted) then
    replies[p] = 'full'
  elseif not take_out(payload) then
    replies[p] = 'gone'
  else
    if not phase then
      redis.call('HSET', pod_key, 'name', name, 'replica', replica, 'image', image, 'generation', 0, 'created_at', STAMP,
        'payload', payload)
      redis.call('SADD', KEYS[4], uuid)
    end
    if known_cpu ~= cpu or known_memory ~= memory then redis.call('HSET', pod_key, 'cpu', cpu, 'memory', memory) end
    if (attempts or '0') ~= '0' or (reason or '') ~= '' then
      redis.call('HSET', pod_key, 'attempts', 0, 'reason', '', 'message', '')
    end
    redis.call('HSET', pod_key, 'phase', 'assigned', 'node', node.name, 'assignment', assignment, 'since', STAMP)
    given[pod_key] = true
    node.free_cpu, node.free_memory, node.free_pods = node.free_cpu - cpu_wanted, node.free_memory - memory_wanted, node.free_pods - 1
    node.cpu, node.memory, node.pods = node.cpu + cpu_wanted, node.memory + memory_wanted, node.pods + 1
    node.queue[#node.queue + 1] = payload
    tell(scheduled, uuid, name, node.name, 'given to ' .. node.name)
    replies[p] = 'ok'
  end
end

if #leave == pod_count then
  redis.call('LTRIM', KEYS[3], 0, -(pod_count + 1))
else
  for _, payload in ipairs(leave) do redis.call('LREM', KEYS[3], -1, payload) end
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
emit_story(scheduled)
return replies

-- Assigns pods to nodes: node check, resources, record and queue in one step. Invariants 2, 3, 9. It is
-- cheapest for the oldest in-flight entries, in their order.
-- Reply: for each pod 'ok'
--        | 'stale' (no longer pending: its payload was dropped)
--        | 'gone' (not in this scheduler's in-flight list any more)
--        | 'unknown_service' (its service does not know it: still in flight, reject it)
--        | 'not_ready' | 'cordoned' | 'engine' | 'full' (the node refuses: still in flight)
--        | 'relabelled' (the node's labels are not those that the scheduler judged: still in flight)
--        | 'rule' (other pods of its service, or of one that its rules name, were assigned since they
--          were counted, or one before it in this call was not: still in flight)
--        | 'volume' (a volume of the pod has its data on another node, or is being removed: still in flight)
--        | 'unreported' (a volume of the pod has no record, and a node that may have its data has not told
--          this run of Redis which volumes it has, or may not be known to it yet, or it is not settled which
--          of several copies is the volume: still in flight)
--        | 'conflict' (an operator has to choose between copies of a volume of the pod: still in flight)
--        | 'crowded' (the node has more pods than the scheduler expects: still in flight)
local in_flight, pushed, volumes, reports, copies, given_up = head_keys()
local _, _, _, _, _, dead_after_ms = head_args()
dead_after_ms = tonumber(dead_after_ms)

redis.call('SCARD', pushed)
if volume_count > 0 then
  redis.call('SCARD', volumes)
  redis.call('HLEN', reports)
  redis.call('HLEN', copies)
  redis.call('ZCARD', given_up)
end

local function append(list, others)
  for _, element in ipairs(others) do list[#list + 1] = element end
  return list
end
local USED = {}
for r = 1, RESOURCE_COUNT do USED[r] = 'used_' .. RESOURCES[r] end
-- The resources come first, so that `record[r]` is an amount of RESOURCES[r], as in a request.
local RECORD_FIELDS = append({ unpack(RESOURCES) }, { 'phase', 'reason' })
local NODE_FIELDS = append(append({ unpack(RESOURCES) }, USED),
  { 'incarnation', 'state', 'beat', 'cordoned', 'engine_problem', 'pods', 'used_pods', 'disk_problem',
    'labels_revision', 'nominated' })

-- Subtracts the kept room from what is free, or with the sign -1 adds it again.
local function keep_room(node, sign)
  node.free_pods = node.free_pods - sign
  for r = 1, RESOURCE_COUNT do node.free[r] = node.free[r] - sign * (node.kept[r] or 0) end
end

local function read_node(n)
  local node_key, pq = node_keys(n)
  -- The incarnation is '' for a node that has none; `expected_pods` is '' if the scheduler expects no number,
  -- `seen_labels` if no pod has rules for labels, `offered_ids` if no pod gets ids of named resources.
  local node, seen_incarnation, expected_pods, seen_labels, offered_ids = node_args(n)
  redis.call('LLEN', pq)
  local record = redis.call('HMGET', node_key, unpack(NODE_FIELDS))
  local incarnation, state, beat, cordoned, engine_problem, max_pods, used_pods, disk_problem,
    labels_revision, nominated = unpack(record, 2 * RESOURCE_COUNT + 1, 2 * RESOURCE_COUNT + 10)
  used_pods = tonumber(used_pods) or 0
  local refusal
  if state ~= 'alive' or (incarnation or '') ~= seen_incarnation
    or NOW - (past(beat) or 0) > dead_after_ms then refusal = 'not_ready'
  elseif cordoned == '1' then refusal = 'cordoned'
  elseif engine_problem and engine_problem ~= '' then refusal = 'engine'
  elseif disk_problem and disk_problem ~= '' then refusal = 'full'
  elseif seen_labels ~= '' and (labels_revision or '0') ~= seen_labels then refusal = 'relabelled'
  elseif used_pods > (tonumber(expected_pods) or math.huge) then refusal = 'crowded' end
  local free, reserved = {}, {}
  for r = 1, RESOURCE_COUNT do
    free[r], reserved[r] = (tonumber(record[r]) or 0) - (tonumber(record[RESOURCE_COUNT + r]) or 0), 0
  end
  local found = { key = node_key, name = node, refusal = refusal, free_pods = (tonumber(max_pods) or 0) - used_pods,
    free = free, reserved = reserved, queue = {}, offered_ids = offered_ids, message = 'assigned to ' .. node }
  if nominated then
    found.nominee, found.kept = read_nomination(nominated)
    if found.nominee then keep_room(found, 1) end
  end
  return found
end

-- Each request is passed once, with the name of the service; pushed pods have names of their own.
local function read_request(q)
  local request, texts, asked = {}, request_resources(q), {}
  for r = 1, RESOURCE_COUNT do
    request[r] = bounded(texts[r])
    if request[r] > 0 then asked[#asked + 1] = r end
  end
  local ports, named, name = request_args(q)
  request.texts, request.asked, request.ports, request.name = texts, asked, ports, name
  -- Named resources are "gpu=1 slots=2", or '' for nearly all pods.
  for of_name, count in string.gmatch(named, '(%S+)=(%d+)') do
    request.named = request.named or {}
    request.named[#request.named + 1] = { name = of_name, count = tonumber(count) }
  end
  return request
end

-- Services whose pods are counted by rules, by name. Decisions hold only if they all do, in their order, and
-- those of related services, too.
local counted = {}
for c = 1, counted_count do
  local service_key, uq = counted_keys(c)
  -- `related` has the names of other ones.
  local name, seen_mark, next_mark, opens_domains, related = counted_args(c)
  local mark, state = unpack(redis.call('HMGET', service_key, 'placed', 'state'), 1, 2)
  counted[name] = { key = service_key, uq = uq, is_known = state, is_outdated = (mark or '') ~= seen_mark,
    next_mark = next_mark, opens_domains = opens_domains == '1', related = related }
end
local function is_outdated(service)
  if service.is_outdated or service.related == '' then return service.is_outdated end
  for name in string.gmatch(service.related, '%S+') do
    if counted[name].is_outdated then return true end
  end
  return false
end
local function note_placed(service)
  -- Without a next mark only this one was compared.
  if not (service.has_pods and service.is_known) or service.next_mark == '' then return end
  redis.call('HSET', service.key, 'placed', service.next_mark .. (service.is_outdated and ' partly' or ''))
  local waiting = service.opens_domains and redis.pcall('HLEN', service.uq)
  if type(waiting) == 'number' and waiting > 0 then wake_schedulers() end
end

local function fits(request, free)
  local asked = request.asked
  for a = 1, #asked do
    local r = asked[a]
    if request[r] > free[r] then return false end
  end
  return true
end

-- Two addresses of a port count as the same.
local function has_free_ports(node, uuid, ports)
  local is_free = true
  each_port(ports, function(field)
    -- The type of the key was checked: no error after the first write.
    local holder = redis.call('HGET', node.key, field)
    if holder and not is_held_by(holder, uuid) then is_free = false end
  end)
  return is_free
end

-- The ids that no pod has, by name, in the order of the node's offer. They are taken from `first` on.
local function free_ids_of(node)
  if node.free_ids then return node.free_ids end
  node.free_ids = {}
  local fields, names = {}, {}
  for id in string.gmatch(node.offered_ids, '%S+') do
    fields[#fields + 1], names[#names + 1] = 'id:' .. id, string.match(id, '^[^/]*')
  end
  local holders = #fields > 0 and redis.call('HMGET', node.key, unpack(fields)) or {}
  for f, name in ipairs(names) do
    local of_name = node.free_ids[name] or { first = 1 }
    node.free_ids[name] = of_name
    if not holders[f] then of_name[#of_name + 1] = string.sub(fields[f], #'id:' + 1) end
  end
  return node.free_ids
end
local function has_free_ids(node, named)
  local free = free_ids_of(node)
  for _, asked in ipairs(named) do
    local of_name = free[asked.name]
    if not of_name or #of_name - of_name.first + 1 < asked.count then return false end
  end
  return true
end
local function take_ids(node, named)
  local ids, free = {}, free_ids_of(node)
  for _, asked in ipairs(named) do
    local of_name = free[asked.name]
    for at = of_name.first, of_name.first + asked.count - 1 do ids[#ids + 1] = of_name[at] end
    of_name.first = of_name.first + asked.count
  end
  return table.concat(ids, ' ')
end

-- By the index of the pod. Pods share the record, so a volume bound in this batch is bound for later pods,
-- too.
local function read_volumes()
  local of_pods, records = {}, {}
  for v = 1, volume_count do
    local volume_key = volume_keys(v)
    local pod_index, name, service, source, replica, space = volume_args(v)
    local record = records[volume_key]
    if not record then
      local node, state, restored, engine_id, conflict, epoch =
        unpack(redis.call('HMGET', volume_key, 'node', 'state', 'restored', 'engine_id', 'conflict', 'epoch'), 1, 6)
      record = { key = volume_key, node = node, state = state, engine_id = engine_id or '', has_conflict = conflict,
        epoch = tonumber(epoch),
        -- A shared volume is on no node.
        is_shared = not tonumber(replica), is_certain = not tonumber(replica) or (node and not restored) }
      records[volume_key] = record
    end
    local list = of_pods[pod_index] or {}
    of_pods[pod_index] = list
    list[#list + 1] = { record = record, name = name, service = service, source = source, replica = replica,
      space = space }
  end
  return of_pods
end
local volumes_of = read_volumes()

local function engine_of(node)
  node.engine_id = node.engine_id or redis.call('HGET', node.key, 'engine_id') or ''
  return node.engine_id
end
-- The record may name another node, or the machine that had this node's name before.
local function is_elsewhere(node, record)
  if record.is_shared or not record.node then return false end
  return record.node ~= node.name or (record.engine_id ~= '' and record.engine_id ~= engine_of(node))
end
-- Read only for a volume that is nowhere yet.
local all_copies
local function copies_of(volume)
  all_copies = all_copies or read_copies(copies)
  return all_copies[volume.name] or {}
end
-- A copy here that was given up must not become the volume.
local function has_data_here(node, of_pod)
  for _, volume in ipairs(of_pod) do
    local record = volume.record
    if record.state == 'removing' or is_elsewhere(node, record) then return false end
    if not (record.is_shared or record.node) then
      for _, copy in ipairs(copies_of(volume)) do
        if copy.node == node.name and is_given_up(given_up, volume.name, copy.epoch) then return false end
      end
    end
  end
  return true
end
local function has_conflict(of_pod)
  for _, volume in ipairs(of_pod) do
    if volume.record.has_conflict then return true end
  end
  return false
end
-- A failover may also have lost that a node exists. One may have been away for nearly the dead time before
-- it, and for as long afterwards: then all live ones have registered again.
local unreported
local is_to_settle = {}
local function may_be_unreported(of_pod)
  for _, volume in ipairs(of_pod) do
    local record = volume.record
    if not record.is_certain then
      if pause_left(2 * dead_after_ms) > 0 then return true end
      unreported = unreported or unreported_nodes(reports)
      if #unreported > 0 then return true end
      -- The next report of these nodes settles which copy it is.
      local candidates = candidate_copies(given_up, volume.name, copies_of(volume), record.node, record.epoch)
      for _, copy in ipairs(candidates) do is_to_settle[copy.node] = true end
      if #candidates > 0 then return true end
    end
  end
  return false
end
local function bind(node, of_pod)
  for _, volume in ipairs(of_pod) do
    local record = volume.record
    if record.is_shared then
      if not record.state then
        redis.call('HSET', record.key, 'name', volume.name, 'service', volume.service, 'source', volume.source,
          'replica', volume.replica, 'space', volume.space, 'state', 'bound', 'created_at', STAMP)
        redis.call('SADD', volumes, volume.name)
        record.state = 'bound'
      end
    elseif not record.node then
      redis.call('HSET', record.key, 'name', volume.name, 'service', volume.service, 'source', volume.source,
        'replica', volume.replica, 'node', node.name, 'engine_id', engine_of(node), 'space', volume.space,
        'state', 'bound', 'created_at', STAMP, 'epoch', next_epoch(given_up, volume.name, copies_of(volume)))
      redis.call('SADD', volumes, volume.name)
      -- The node counts it before its next report.
      local before = tonumber(redis.call('HGET', node.key, 'volumes') or 0) or 0
      redis.call('HSET', node.key, 'volumes', before + 1)
      record.node, record.engine_id, record.is_certain = node.name, engine_of(node), true
    end
  end
end

local nodes, requests, records = {}, {}, {}
for n = 1, node_count do nodes[tostring(n)] = read_node(n) end
for q = 1, request_count do requests[tostring(q)] = read_request(q) end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, unpack(RECORD_FIELDS))
end

-- Usually these are the pods, in their order, and one LTRIM removes them. It raises WRONGTYPE, so it is read
-- first.
local oldest = redis.call('LRANGE', in_flight, -pod_count, -1)
local taken = {}
local function take_out(payload, p)
  if oldest[pod_count + 1 - p] ~= payload then return redis.call('LREM', in_flight, -1, payload) == 1 end
  taken[#taken + 1] = payload
  return true
end

local pushed_pods = {}
for q = 1, pushed_pod_count do
  local pod_index, name, image, replica = pushed_pod_args(q)
  pushed_pods[pod_index] = { name = name, image = image, replica = replica }
end

-- A second copy of the same uuid in one batch is stale.
local replies, assigned, scheduled = {}, {}, batch_event('PodScheduled', 'assigned')
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local payload, node_index, request_index, new_assignment = pod_args(p)
  local uuid = uuid_of(pod_key)
  local node, request, record = nodes[node_index], requests[request_index], records[p]
  local of_pod = volume_count > 0 and volumes_of[tostring(p)]
  local phase, reason = unpack(record, RESOURCE_COUNT + 1, RESOURCE_COUNT + 2)
  local of_user = pushed_pod_count > 0 and pushed_pods[tostring(p)]
  local pushed_pod, name = not phase and of_user, of_user and of_user.name or request.name
  local of_counted = counted_count > 0 and counted[request.name]
  local is_nominee = node.nominee == uuid
  if is_nominee then keep_room(node, -1) end
  if assigned[pod_key] or (phase and phase ~= 'pending') then
    take_out(payload, p)
    replies[p] = 'stale'
  elseif not (phase or pushed_pod) then
    replies[p] = 'unknown_service'
  elseif of_counted and is_outdated(of_counted) then
    replies[p] = 'rule'
  elseif node.refusal then
    replies[p] = node.refusal
  elseif node.free_pods < 1 or not fits(request, node.free)
    or (request.ports ~= '' and not has_free_ports(node, uuid, request.ports))
    or (request.named and not has_free_ids(node, request.named)) then
    replies[p] = 'full'
  elseif of_pod and has_conflict(of_pod) then
    replies[p] = 'conflict'
  elseif of_pod and not has_data_here(node, of_pod) then
    replies[p] = 'volume'
  elseif of_pod and may_be_unreported(of_pod) then
    replies[p] = 'unreported'
  elseif not take_out(payload, p) then
    replies[p] = 'gone'
  else
    if pushed_pod then
      create_pushed_pod(pod_key, pushed, uuid, name, pushed_pod.image, pushed_pod.replica, payload, request.texts)
    end
    -- A waiting pod with attempts also has a reason.
    if (reason or '') ~= '' then
      redis.call('HSET', pod_key, 'attempts', 0, 'reason', '', 'message', '')
    end
    redis.call('HSET', pod_key, 'phase', 'assigned', 'node', node.name, 'assignment', new_assignment,
      'since', STAMP)
    assigned[pod_key] = true
    node.free_pods = node.free_pods - 1
    local free, reserved, texts, asked = node.free, node.reserved, request.texts, request.asked
    for a = 1, #asked do
      local r = asked[a]
      free[r], reserved[r] = free[r] - request[r], reserved[r] + request[r]
    end
    for r = 1, RESOURCE_COUNT do
      if record[r] ~= texts[r] then redis.call('HSET', pod_key, RESOURCES[r], texts[r]) end
    end
    reserve_ports(node.key, pod_key, uuid, name, request.ports)
    if request.named then reserve_ids(node.key, pod_key, uuid, name, take_ids(node, request.named)) end
    if of_pod then
      bind(node, of_pod)
      -- The name may be another machine's later.
      redis.call('HSET', pod_key, 'engine_id', engine_of(node))
    end
    node.queue[#node.queue + 1] = payload
    add(scheduled, uuid, name, node.name, node.message)
    replies[p] = 'ok'
  end
  if is_nominee and replies[p] == 'ok' then
    redis.call('HDEL', node.key, 'nominated')
    node.nominee = nil
  elseif is_nominee then
    keep_room(node, 1)
  end
  if of_counted then
    of_counted.has_pods = of_counted.has_pods or replies[p] == 'ok'
    of_counted.is_outdated = of_counted.is_outdated or replies[p] ~= 'ok'
  end
end
for _, service in pairs(counted) do note_placed(service) end

if #taken == pod_count then
  redis.call('LTRIM', in_flight, 0, -(pod_count + 1))
else
  for _, payload in ipairs(taken) do redis.call('LREM', in_flight, -1, payload) end
end
for n = 1, node_count do
  local node_key, pq = node_keys(n)
  local node = nodes[tostring(n)]
  if #node.queue > 0 then
    reserve(node_key, #node.queue, node.reserved)
    redis.call('LPUSH', pq, unpack(node.queue))
  end
end
emit_batch(scheduled)
-- They report on their own, but a pod waits now.
for _, node in ipairs(unreported or {}) do redis.call('PUBLISH', 'wake:' .. node, 'volumes') end
for node in pairs(is_to_settle) do redis.call('PUBLISH', 'wake:' .. node, 'volumes') end
return replies

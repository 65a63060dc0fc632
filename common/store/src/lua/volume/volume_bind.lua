-- Makes a node's copy of a persistent volume the volume, as an operator chose. All other copies are given up,
-- but stay where they are.
-- Reply: 'OK' | 'BOUND' (it was that one before) | 'MISSING' (the node has no such copy)
--        | 'USED' (a pod of the replica has another copy)
--        | 'REMOVING' (the copy or the volume is being removed)
--        | 'CHANGED' (the pods of the replica are not those that the caller has seen: read again)
local volume_key, volumes, copies, given_up, problems, node_key, removals, slots = head_keys()
local name, service, source, replica, node = head_args()
local holder, state, engine_id, epoch, found, conflict, lost, mounted = unpack(redis.call('HMGET', volume_key, 'node',
  'state', 'engine_id', 'epoch', 'found', 'conflict', 'lost', 'mounted'), 1, 8)
redis.call('SCARD', volumes)
redis.call('SCARD', problems)
redis.call('ZCARD', given_up)
redis.call('HGET', node_key, 'state')
local is_being_removed = redis.call('SISMEMBER', removals, name) == 1
local chosen
local of_volume = read_copies(copies)[name]
for _, copy in ipairs(of_volume or {}) do
  if copy.node == node then chosen = copy end
end
local seen, is_used = {}, false
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  seen[uuid] = true
  local phase, reason = unpack(redis.call('HMGET', pod_key, 'phase', 'reason'), 1, 2)
  -- A pod that waits for the decision has no container.
  local waits = phase == 'assigned' and string.find(reason or '', '^Volume') ~= nil
  is_used = is_used or (PLACED[phase] and not waits)
end
for _, slot in ipairs({ replica, replica .. '+' }) do
  local uuid = redis.call('HGET', slots, slot)
  if uuid and not seen[uuid] then return 'CHANGED' end
end
if state == 'removing' or is_being_removed then return 'REMOVING' end
if holder == node and not chosen then
  if not conflict then return found == '1' and 'BOUND' or 'MISSING' end
  chosen = { epoch = tonumber(epoch), engine_id = engine_id or '', is_mounted = mounted == '1' }
end
if not chosen then return 'MISSING' end
if is_used and not chosen.is_mounted then return 'USED' end
if holder and holder ~= node and found == '1' and not lost then
  redis.call('HSETNX', copies, name .. ' ' .. holder,
    (epoch or '-') .. ' ' .. ((engine_id or '') == '' and '-' or engine_id) .. ' 0')
end
redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica, 'node', node,
  'engine_id', chosen.engine_id, 'state', 'bound', 'found', 1, 'created_at', STAMP)
redis.call('HDEL', volume_key, 'restored', 'conflict', 'lost', 'mounted', 'epoch')
if chosen.epoch then redis.call('HSET', volume_key, 'epoch', string.format('%.0f', chosen.epoch)) end
redis.call('HDEL', copies, name .. ' ' .. node)
redis.call('SADD', volumes, name)
redis.call('SREM', problems, name)
note_given_up(given_up, name, epoch, of_volume)
emit('service', service, 'VolumeMoved', service, node, '', 'volume ' .. name .. ' is the copy on ' .. node
  .. ': an operator has chosen it')
wake_schedulers()
return 'OK'

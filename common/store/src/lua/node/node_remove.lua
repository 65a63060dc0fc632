-- Removes a node that is dead and drained, or only expected to report its volumes. With `is_former` it gives
-- up the volumes of machines that had the name before; the node may live.
-- Reply: 'OK' | 'MISSING' | 'ALIVE' (it was not declared dead)
--        | 'DRAINING' (its payloads are still being moved)
local node_key, nodes, beats, heartbeat_key, pq, rq, cs, stop_set, requests, reports, proxies,
  copies, reported = head_keys()
local node, is_former = head_args()
local state = redis.call('HGET', node_key, 'state')
local is_member = redis.call('SISMEMBER', nodes, node) == 1
local beat = redis.call('ZSCORE', beats, node)
local left_behind = redis.call('LLEN', pq) + redis.call('LLEN', rq) + redis.call('SCARD', cs)
redis.call('GET', heartbeat_key)
redis.call('SCARD', stop_set)
redis.call('LLEN', requests)
redis.call('HLEN', proxies)
redis.call('SCARD', reported)
local own_copies = {}
for _, field in ipairs(redis.call('HKEYS', copies)) do
  if string.match(field, ' (%S+)$') == node then own_copies[#own_copies + 1] = field end
end
local former, prefix = {}, former_machine(node, '')
for _, field in ipairs(redis.call('HKEYS', reports)) do
  if string.sub(field, 1, #prefix) == prefix then former[#former + 1] = field end
end
local function give_up(...)
  if redis.call('HDEL', reports, ...) > 0 then wake_schedulers() end
end
if is_former == '1' then
  if #former == 0 then return 'MISSING' end
  give_up(unpack(former))
  emit('node', node, 'NodeRemoved', node, node, '', 'an operator gave up the volumes of the machines that had this name')
  return 'OK'
end
-- It had volumes in a recovered or restored cluster, and has not registered since.
local is_expected = #former > 0 or redis.call('HEXISTS', reports, node) == 1
if not state and not is_member and not is_expected then return 'MISSING' end
-- A failover or a person removed its record; with a heartbeat it is alive.
if state ~= 'dead' and (state or beat) then return 'ALIVE' end
if left_behind > 0 then return 'DRAINING' end
redis.call('DEL', node_key, heartbeat_key, stop_set, requests, reported)
-- A machine that comes back reports them again.
for _, field in ipairs(own_copies) do redis.call('HDEL', copies, field) end
redis.call('SREM', nodes, node)
redis.call('ZREM', beats, node)
redis.call('HDEL', proxies, node)
give_up(node, unpack(former))
emit('node', node, 'NodeRemoved', node, node, '',
  'an operator removed it; a worker of this name can register again')
return 'OK'

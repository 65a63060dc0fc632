-- Removes a node that is dead and has no payloads left, or that is only expected to report its volumes.
-- Reply: 'OK' | 'MISSING' | 'ALIVE' (it was not declared dead)
--        | 'DRAINING' (its payloads are still being moved)
local node_key, nodes, beats, heartbeat_key, pq, rq, cs, stop_set, log_requests, reports, proxies =
  head_keys()
local node = head_args()
local state = redis.call('HGET', node_key, 'state')
local is_member = redis.call('SISMEMBER', nodes, node) == 1
local beat = redis.call('ZSCORE', beats, node)
local left_behind = redis.call('LLEN', pq) + redis.call('LLEN', rq) + redis.call('SCARD', cs)
redis.call('GET', heartbeat_key)
redis.call('SCARD', stop_set)
redis.call('LLEN', log_requests)
redis.call('HLEN', proxies)
-- It had volumes in a cluster that was recovered or restored, and has not registered since.
local is_expected = redis.call('HEXISTS', reports, node) == 1
if not state and not is_member and not is_expected then return 'MISSING' end
-- A member without a record was lost by hand or in a failover. It is alive if it has a heartbeat.
if state ~= 'dead' and (state or beat) then return 'ALIVE' end
if left_behind > 0 then return 'DRAINING' end
redis.call('DEL', node_key, heartbeat_key, stop_set, log_requests)
redis.call('SREM', nodes, node)
redis.call('ZREM', beats, node)
redis.call('HDEL', proxies, node)
-- No pod waits any more for what it says of its volumes.
if redis.call('HDEL', reports, node) == 1 then redis.call('PUBLISH', 'wake:scheduler', 'capacity') end
emit('node', node, 'NodeRemoved', node, node, '',
  'an operator removed it; a worker of this name can register again')
return 'OK'

-- Reads the heartbeat key of an external worker. Each change of the value is a heartbeat, timed by Redis; the
-- value is compared with no clock.
-- Reply: 'OURS' | 'SILENT' (no change) | 'BEAT' | 'JOINED' | 'DRAINING'
local node_key, nodes, beats, heartbeat_key, pq, rq, cs = head_keys()
-- `seen` is a value read while the worker had no record, or ''. A worker joins only if it changed: one of
-- kubeleet's own, whose record was lost, writes no heartbeat before it has registered again.
local node, new_incarnation, max_pods, seen = head_args()
local kind, state, last_value = unpack(redis.call('HMGET', node_key, 'kind', 'state', 'guest_value'), 1, 3)
local value = redis.call('GET', heartbeat_key)
redis.call('SCARD', nodes)
redis.call('ZCARD', beats)
local left_behind = redis.call('LLEN', pq) + redis.call('LLEN', rq) + redis.call('SCARD', cs)
if kind == 'kubeleet' then return 'OURS' end
if not value or value == last_value then return 'SILENT' end
if not kind and (seen == '' or seen == value) then return 'SILENT' end
if state == 'dead' and left_behind > 0 then return 'DRAINING' end

redis.call('HSET', node_key, 'beat', NOW, 'guest_value', value)
redis.call('ZADD', beats, NOW, node)
if state == 'alive' then return 'BEAT' end
redis.call('HSET', node_key, 'name', node, 'kind', 'guest', 'state', 'alive', 'incarnation', new_incarnation,
  'registered_at', STAMP, 'pods', max_pods, 'runtime', 'guest')
redis.call('HSETNX', node_key, 'created_at', STAMP)
redis.call('SADD', nodes, node)
emit('node', node, 'NodeReady', node, node, '',
  'an external worker: it cannot be fenced or told to stop a pod')
wake_schedulers()
return 'JOINED'

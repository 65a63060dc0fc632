-- Looks at the heartbeat of a worker that is not ours. Every change of the value is a beat, timed by Redis; the value
-- itself is compared with no clock. A worker of ours is left alone.
-- KEYS: events, meta, node:<n>, nodes, beats, hb:<n>, pq:<n>, rq:<n>, cs:<n>
-- ARGV: node, fresh incarnation, how many pods a guest may hold
-- Reply: 'OURS' | 'SILENT' (no change) | 'BEAT' | 'JOINED' | 'DRAINING'
local name, fresh, pods = unpack(ARGV)
local node = redis.call('HMGET', KEYS[3], 'kind', 'state', 'guest_value')
local value = redis.call('GET', KEYS[6])
redis.call('SCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
local held = redis.call('LLEN', KEYS[7]) + redis.call('LLEN', KEYS[8]) + redis.call('SCARD', KEYS[9])
if node[1] == 'kubeleet' then return 'OURS' end
if not value or value == node[3] then return 'SILENT' end
if node[2] == 'dead' and held > 0 then return 'DRAINING' end

redis.call('HSET', KEYS[3], 'beat', NOW, 'guest_value', value)
redis.call('ZADD', KEYS[5], NOW, name)
if node[2] == 'alive' then return 'BEAT' end
redis.call('HSET', KEYS[3], 'name', name, 'kind', 'guest', 'state', 'alive', 'incarnation', fresh, 'registered_at', STAMP,
  'pods', pods, 'runtime', 'guest')
redis.call('SADD', KEYS[4], name)
emit('node', name, 'NodeReady', name, name, '', 'a guest: it can be neither fenced nor told to stop a pod')
redis.call('PUBLISH', 'wake:scheduler', 'capacity')
return 'JOINED'

-- A worker begins a life: from now on only this incarnation may write. What it was starting goes back to its queue.
-- KEYS: events, meta, node:<n>, nodes, beats, hb:<n>, pq:<n>, rq:<n>, cs:<n>
-- ARGV: node, incarnation, labels, cpu, memory, pods, runtime, engine version, version
-- Reply: {'OK', how many went back} | {'DRAINING'} (it was declared dead and its pods are still being moved: try again)
local name, incarnation, labels, cpu, memory, pods, runtime, engine_version, version = unpack(ARGV)
local node = redis.call('HMGET', KEYS[3], 'state', 'kind', 'incarnation')
redis.call('SCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('GET', KEYS[6])
local waiting, starting, running = redis.call('LLEN', KEYS[7]), redis.call('LLEN', KEYS[8]), redis.call('SCARD', KEYS[9])
if node[1] == 'dead' and waiting + starting + running > 0 then return { 'DRAINING' } end

redis.call('HSET', KEYS[3], 'name', name, 'kind', 'kubeleet', 'state', 'alive', 'incarnation', incarnation, 'beat', NOW,
  'registered_at', STAMP, 'labels', labels, 'cpu', cpu, 'memory', memory, 'pods', pods, 'runtime', runtime,
  'engine_version', engine_version, 'version', version)
redis.call('HDEL', KEYS[3], 'engine_problem', 'guest_value')
redis.call('SADD', KEYS[4], name)
redis.call('ZADD', KEYS[5], NOW, name)
redis.call('SET', KEYS[6], NOW)
for _ = 1, starting do redis.call('LMOVE', KEYS[8], KEYS[7], 'LEFT', 'RIGHT') end
emit('node', name, node[1] == 'alive' and 'NodeRestarted' or 'NodeReady', name, name, '',
  runtime .. ' ' .. engine_version .. ', ' .. running .. ' pods run, ' .. (waiting + starting) .. ' wait')
redis.call('PUBLISH', 'wake:scheduler', 'capacity')
return { 'OK', starting }

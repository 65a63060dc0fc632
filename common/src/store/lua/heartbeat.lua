-- A worker lives. It says how it is and asks about some of the containers it has.
-- KEYS: events, meta, node:<n>, beats, hb:<n>, stop:<n>, then pod:<uuid> for each container asked about
-- ARGV: node, incarnation, psi or '', engine problem or '', then (uuid, assignment) for each
-- Reply: {'FENCED', 'dead'} (declared dead: nothing here is its own)
--        | {'FENCED', 'replaced'} (another life has the name, or Redis has lost this one: register again)
--        | {'OK', changed_at of the master, uuids to stop, uuids asked about that are not its own, how many nodes there are}
local name, incarnation, psi, problem = unpack(ARGV, 1, 4)
local node = redis.call('HMGET', KEYS[3], 'incarnation', 'state', 'engine_problem')
local others = redis.call('ZCARD', KEYS[4])
redis.call('GET', KEYS[5])
local stops = redis.call('SMEMBERS', KEYS[6])
if node[2] == 'dead' then return { 'FENCED', 'dead' } end
if node[1] ~= incarnation then return { 'FENCED', 'replaced' } end

local foreign = {}
for i = 7, #KEYS do
  local at = 5 + (i - 7) * 2
  local pod = redis.call('HMGET', KEYS[i], 'phase', 'node', 'assignment')
  local holds = pod[1] == 'assigned' or pod[1] == 'running' or pod[1] == 'stopping'
  if not holds or pod[2] ~= name or pod[3] ~= ARGV[at + 1] then foreign[#foreign + 1] = ARGV[at] end
end

local changed_at = master_changed_at()
redis.call('HSET', KEYS[3], 'beat', NOW, 'psi', psi, 'engine_problem', problem)
redis.call('ZADD', KEYS[4], NOW, name)
redis.call('SET', KEYS[5], NOW)
local ill, was_ill = problem ~= '', node[3] and node[3] ~= ''
if ill and not was_ill then emit('node', name, 'EngineUnhealthy', name, name, '', problem) end
if was_ill and not ill then
  emit('node', name, 'EngineHealthy', name, name, '', 'the engine answers again')
  redis.call('PUBLISH', 'wake:scheduler', 'capacity')
end
return { 'OK', changed_at, stops, foreign, others }

-- Records that a worker lives, and returns which of its pods are no longer its own.
-- Reply: {'FENCED', 'dead'} (declared dead: nothing it runs is its own)
--        | {'FENCED', 'replaced'} (another session has its name, or Redis has lost this one: register again)
--        | {'FENCED', 'unknown'} (this Redis does not know the worker's cluster)
--        | {'OK', time of the last change of the master, uuids to stop, uuids that are not its own,
--           number of nodes, uuids with broken records, run id of Redis, those uuids among the not own ones
--           that have no record}
-- A pod with a broken record stays with its worker.
local node_key, beats, heartbeat_key, stop_set, held = head_keys()
-- `psi` is JSON, or '' if the kernel reports none. `engine_problem` is '' if the engine is well.
-- `containers_held` counts containers without a record that the worker leaves alone.
local node, incarnation, psi, engine_problem, cluster, containers_held = head_args()
local meta = read_meta('run_id', 'changed_at', 'cluster', 'longest_fence')
local known_cluster = meta[3]
local current_incarnation, state, last_problem, times =
  unpack(redis.call('HMGET', node_key, 'incarnation', 'state', 'engine_problem', 'times'), 1, 4)
-- Broken heartbeats of all nodes begin anew: no node may fall silent by that.
local live_nodes = redis.pcall('ZCARD', beats)
local are_beats_broken = type(live_nodes) ~= 'number'
local stops = redis.pcall('SMEMBERS', stop_set)
if stops.err then stops = {} end
-- A Redis with this random incarnation knows the worker: only the cluster id was lost or overwritten.
local is_id_lost = known_cluster ~= cluster and current_incarnation == incarnation
if cluster ~= '' and known_cluster ~= cluster and not is_id_lost then return { 'FENCED', 'unknown' } end
if state == 'dead' then return { 'FENCED', 'dead' } end
-- An invalid state was written by hand: registering writes the whole record.
if current_incarnation ~= incarnation or state ~= 'alive' then return { 'FENCED', 'replaced' } end

local last_hold = redis.pcall('HGET', held, node)
local was_holding = type(last_hold) == 'string' and string.sub(last_hold, -8) == ' records'
local foreign, broken, unknown = {}, {}, {}
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid, assignment = pod_args(p)
  local record = read_record(pod_key)
  if not record then
    broken[#broken + 1] = uuid
  elseif not PLACED[record[1]] or record[2] ~= node or record[3] ~= assignment then
    foreign[#foreign + 1] = uuid
    if redis.call('EXISTS', pod_key) == 0 then unknown[#unknown + 1] = uuid end
  end
end

local changed_at, redis_run = read_master(meta)
if is_id_lost and cluster ~= '' then redis.call('HSET', META, 'cluster', cluster) end
local can_hold = type(redis.pcall('HDEL', held, node)) == 'number'
if can_hold and containers_held ~= '0' then
  redis.call('HSET', held, node, cluster .. ' ' .. containers_held .. ' ' .. STAMP .. ' records')
  redis.call('PEXPIRE', held, 60000)
end
redis.call('HSET', node_key, 'beat', NOW, 'psi', psi, 'engine_problem', engine_problem)
-- Before the worker has a lease.
local fence = registered_times(times, incarnation)
if fence then note_fence(fence, meta[4], changed_at) end
if are_beats_broken then set_aside(beats) end
redis.call('ZADD', beats, NOW, node)
redis.call('SET', heartbeat_key, NOW)
local is_holding = can_hold and containers_held ~= '0'
if is_holding and not was_holding then
  emit('node', node, 'ContainersHeld', node, node, '', containers_held .. ' containers are left alone, because Redis '
    .. 'has lost the records of their pods: `kubeleet cluster recover` writes them again')
elseif was_holding and not is_holding then
  emit('node', node, 'HoldEnded', node, node, '', 'no containers are left alone any more')
end
local is_ill, was_ill = engine_problem ~= '', last_problem and last_problem ~= ''
if is_ill and not was_ill then emit('node', node, 'EngineUnhealthy', node, node, '', engine_problem) end
if was_ill and not is_ill then
  emit('node', node, 'EngineHealthy', node, node, '', 'the container engine answers again')
  wake_schedulers()
end
return { 'OK', changed_at, stops, foreign, are_beats_broken and 1 or live_nodes, broken, redis_run, unknown }

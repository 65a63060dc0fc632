-- Registers a worker: only this incarnation may write now. Payloads in rq go back to pq. A Redis without a
-- cluster id gets one from the first worker that knows none.
-- Reply: {'OK', number of payloads that went back, id of the cluster}
--        | {'DRAINING'} (it was declared dead, or its name was another machine's, and the pods are still
--          being moved: try again)
--        | {'TAKEN', time at which another worker registered, ms since its last heartbeat, ms of silence
--          after which it loses the name, value of its last heartbeat} (its heartbeats arrive, or did a
--          moment ago)
--        | {'HOLD', id of the cluster that this Redis knows or '', run id of Redis} (this Redis does not know
--          the worker's cluster: it was emptied, or is another one. The worker leaves its containers alone)
local node_key, nodes, beats, heartbeat_key, pq, rq, cs, stop_set, held, reports = head_keys()
-- `known_cluster` is '' if the worker knows none; `containers` is how many it has; `engine_id` may be ''.
-- `own_labels` are those of an operator that the worker has saved, or ''.
local node, incarnation, labels, max_pods, runtime, engine_version, version, known_cluster, new_cluster,
  containers, takeover_after_ms, reserved, engine_id, times, settings, own_labels = head_args()
local cluster = read_meta('cluster')[1]
-- If the key of the holds is broken, none is written.
local can_hold = type(redis.pcall('HLEN', held)) == 'number'
if known_cluster ~= '' and cluster ~= known_cluster then
  -- At maxmemory Redis judges a script by its first write: this one frees. It also proves that this Redis is
  -- a master with enough replicas.
  redis.call('HDEL', META, '-')
  if can_hold then
    redis.call('HSET', held, node, known_cluster .. ' ' .. containers .. ' ' .. STAMP)
    redis.call('PEXPIRE', held, 60000)
  end
  return { 'HOLD', cluster or '', run_id() }
end
local state, current_incarnation, beat, registered_at, known_engine, known_volumes, known_times, known_labels,
  known_own_labels, labels_revision = unpack(redis.call('HMGET', node_key, 'state', 'incarnation', 'beat',
    'registered_at', 'engine_id', 'volumes', 'times', 'labels', 'own_labels', 'labels_revision'), 1, 10)
redis.call('SCARD', nodes)
redis.call('SCARD', stop_set)
-- As in `heartbeat`.
local are_beats_broken = is_error(redis.pcall('ZCARD', beats), 'WRONGTYPE')
local waiting, starting, running = redis.call('LLEN', pq), redis.call('LLEN', rq), redis.call('SCARD', cs)
-- Notes that this machine, without its name yet, may have volumes. A failover may have lost them with its
-- registration, and no pod would wait for it. A machine new to the cluster has none.
local function wait_for_this_machine()
  if known_cluster ~= '' and engine_id ~= '' and engine_id ~= known_engine then
    redis.pcall('HSETNX', reports, former_machine(node, engine_id), '')
  end
end
if state == 'dead' and waiting + starting + running > 0 then
  wait_for_this_machine()
  return { 'DRAINING' }
end

-- A worker keeps its name while its heartbeats arrive. An incarnation without a holder was written by hand.
local function holder_of(some) return string.match(some or '', '^(%x+)%.') end
local holder = holder_of(current_incarnation)
if state == 'alive' and holder and holder ~= holder_of(incarnation) then
  local last_heartbeat = redis.pcall('GET', heartbeat_key)
  if is_no_past(beat) then
    -- A time of a former master whose clock was ahead: unchanged, it would never be silent.
    beat = NOW
    redis.call('HSET', node_key, 'beat', STAMP)
  end
  -- After a change of the master the clock may have jumped, and the other worker may not have found it.
  local silence = NOW - math.max(past(beat), master_changed_at())
  -- Until its own times are over it may run what must not run twice. See `takes_over_after`.
  local fence, dead = registered_times(known_times, current_incarnation)
  local after_ms = math.max(tonumber(takeover_after_ms), fence or 0, (dead or 0) - 1000)
  if silence < after_ms then
    wait_for_this_machine()
    return { 'TAKEN', past(registered_at) or NOW, silence, after_ms - silence,
      type(last_heartbeat) == 'string' and last_heartbeat or '' }
  end
end

-- Another machine, or an engine set up anew: the former containers and volumes are not here.
local is_other = known_engine and known_engine ~= engine_id
if is_other and state == 'alive' and waiting + starting + running > 0 then
  redis.pcall('ZREM', beats, node)
  redis.call('HSET', node_key, 'state', 'dead', 'dead_at', STAMP)
  redis.call('DEL', stop_set)
  emit('node', node, 'NodeDead', node, node, '', 'another machine registers under this name: the pods of the former'
    .. ' one are moved to other nodes')
  wait_for_this_machine()
  return { 'DRAINING' }
end

if can_hold then redis.call('HDEL', held, node) end
if not cluster then
  cluster = new_cluster
  redis.call('HSET', META, 'cluster', cluster)
end
redis.call('HSET', node_key, 'name', node, 'kind', 'kubeleet', 'state', 'alive', 'incarnation', incarnation,
  'beat', NOW, 'registered_at', STAMP, 'labels', labels, 'pods', max_pods, 'runtime', runtime,
  'engine_version', engine_version, 'version', version, 'reserved', reserved, 'times', times,
  'settings', settings)
redis.call('HSETNX', node_key, 'created_at', STAMP)
-- Redis was emptied, or its record repaired.
local is_restored = not known_own_labels and own_labels ~= ''
if is_restored then redis.call('HSET', node_key, 'own_labels', own_labels) end
if is_restored or labels ~= known_labels then
  redis.call('HSET', node_key, 'labels_revision', (tonumber(labels_revision) or 0) + 1)
end
set_resources(node_key, head_resources())
redis.call('HDEL', node_key, 'engine_problem', 'guest_value', 'shared_volumes')
redis.call('SADD', nodes, node)
set_or_delete(node_key, 'engine_id', engine_id)
-- Until it reports its volumes, none without a record is bound: see `volumes_report`. A broken key keeps no
-- worker away.
if is_other then
  -- The former machine may return with its volumes, unless it told this run of Redis that it has none.
  local reported = redis.pcall('HGET', reports, node)
  local has_none = reported == master_run() and (tonumber(known_volumes) or 0) == 0
  if not has_none and not is_error(reported, '') then
    redis.pcall('HSET', reports, former_machine(node, known_engine), reported or '')
  end
  redis.pcall('HDEL', reports, node)
  redis.call('HDEL', node_key, 'volumes')
end
redis.pcall('HDEL', reports, former_machine(node, engine_id))
redis.pcall('HSETNX', reports, node, '')
if are_beats_broken then set_aside(beats) end
redis.call('ZADD', beats, NOW, node)
redis.call('SET', heartbeat_key, NOW)
for _ = 1, starting do redis.call('LMOVE', rq, pq, 'LEFT', 'RIGHT') end
emit('node', node, state == 'alive' and 'NodeRestarted' or 'NodeReady', node, node, '', runtime .. ' '
  .. engine_version .. ', pods running: ' .. running .. ', waiting: ' .. (waiting + starting))
wake_schedulers()
redis.call('PUBLISH', 'wake:reconcile', 'node ' .. node)
return { 'OK', starting, cluster }

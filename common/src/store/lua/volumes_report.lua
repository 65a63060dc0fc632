-- Records which persistent volumes a node has, and answers which it is to remove.
-- Reply: {'FENCED'} | {'OK', names of volumes to remove, names of volumes whose record names another node,
--   the run of Redis that answers} All of the node's volumes are in one call. It counts as complete if its
--   engine was asked after the worker knew this run of Redis: what was started for an earlier one is among
--   them then. A volume without a record gets one: Redis has lost it, and its data is here. A worker that
--   dies before it reads the reply asks again. It reports a volume as removed once its engine has no such
--   volume.
local node_key, volumes, removals, reports = head_keys()
local node, incarnation, seen_run = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
redis.call('SCARD', volumes)
local records = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  records[v] = redis.call('HMGET', volume_key, 'node', 'state', 'restored', 'engine_id')
end
local known_run = redis.call('HGET', reports, node)
local engine_id = redis.call('HGET', node_key, 'engine_id') or ''
-- What this node was asked to remove, and no longer has, is reported with `removed`.
redis.call('SCARD', removals)

local current_run = master_run()
local elsewhere, has_removed, present = {}, false, 0
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, removed = volume_args(v)
  local holder, state, restored, holding_engine = unpack(records[v], 1, 4)
  if removed == '1' then
    redis.call('SREM', removals, name)
    if holder == node and state == 'removing' then
      redis.call('DEL', volume_key)
      redis.call('SREM', volumes, name)
      emit('service', service, 'VolumeRemoved', service, node, '', 'volume ' .. name .. ' was removed')
      has_removed = true
    end
  elseif not tonumber(replica) then
    -- Shared: every node that has the directory reports it, and none is its own.
    if not state then
      redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
        'space', space, 'state', 'bound', 'created_at', STAMP)
      redis.call('SADD', volumes, name)
    end
  elseif not holder or (restored and holder ~= node) then
    present = present + 1
    -- What a backup says of the place of a volume is older than the volume.
    if holder then
      emit('service', service, 'VolumeMoved', service, node, '', 'volume ' .. name .. ' is on ' .. node
        .. ', and not on ' .. holder .. ' as in the backup')
    end
    redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
      'node', node, 'engine_id', engine_id, 'space', space, 'state', 'bound', 'created_at', STAMP)
    redis.call('SADD', volumes, name)
    redis.call('HDEL', volume_key, 'restored')
  elseif holder ~= node then
    elsewhere[#elsewhere + 1] = name
  else
    present = present + 1
    if restored then redis.call('HDEL', volume_key, 'restored') end
    -- The list may have been another program's, and was begun anew.
    redis.call('SADD', volumes, name)
    -- It is here, whatever id its engine had before.
    if (holding_engine or '') ~= engine_id then redis.call('HSET', volume_key, 'engine_id', engine_id) end
  end
end
-- The worker asks at first without knowing the run, and reports what it has removed alone.
if seen_run ~= '' then redis.call('HSET', node_key, 'volumes', present) end
local is_complete = seen_run == current_run and known_run ~= current_run
if is_complete then redis.call('HSET', reports, node, current_run) end
-- A pod may wait for a volume of this name that has no data, or for this report.
if has_removed or is_complete then redis.call('PUBLISH', 'wake:scheduler', 'capacity') end
return { 'OK', redis.call('SMEMBERS', removals), elsewhere, current_run }

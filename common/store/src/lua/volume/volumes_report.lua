-- Records the persistent volumes of a node, and returns those to remove.
-- Reply: {'FENCED'} | {'OK', names of volumes to remove, names of volumes whose record names another copy,
--   the run of Redis that answers, names of volumes that were here at the last report and are not any more,
--   or that the machine has which had this name before}
-- With `is_whole` the call has all volumes of the node. It counts as complete if the worker knew this run of
-- Redis before it asked its engine: volumes created under an earlier run are among them then. A worker that
-- dies before it reads the reply asks again.
--
-- `volumes:copies` notes copies that no record names. Which copy is the volume is settled only when all nodes
-- have reported, never by the order of reports: the youngest is, or with unknown ages the one that a pod has
-- or a backup names. If the copies contradict each other, an operator chooses.
local node_key, volumes, removals, reports, copies, given_up, problems, reported = head_keys()
local node, incarnation, seen_run, is_whole, settle_after_ms = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
redis.call('SCARD', volumes)
redis.call('SCARD', problems)
redis.call('ZCARD', given_up)
local records = {}
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  records[v] = redis.call('HMGET', volume_key, 'node', 'state', 'restored', 'engine_id', 'epoch', 'found',
    'conflict', 'lost', 'mounted')
end
local known_run = redis.call('HGET', reports, node)
local engine_id = redis.call('HGET', node_key, 'engine_id') or ''
local seen_before, copies_of = redis.call('SMEMBERS', reported), read_copies(copies)
redis.call('SCARD', removals)

local current_run = master_run()
-- The first call does not know the run and reports removals only.
local is_complete = is_whole == '1' and seen_run == current_run and known_run ~= current_run
if is_complete then redis.call('HSET', reports, node, current_run) end
local is_everything_known
local function can_settle()
  if is_everything_known == nil then
    is_everything_known = #unreported_nodes(reports) == 0 and pause_left(tonumber(settle_after_ms)) == 0
  end
  return is_everything_known
end

local elsewhere, present, needs_scheduler, here = {}, 0, is_complete, {}

local function noted_copy(name)
  for _, copy in ipairs(copies_of[name] or {}) do
    if copy.node == node then return copy end
  end
end
local function forget_copy(name)
  if noted_copy(name) then redis.call('HDEL', copies, name .. ' ' .. node) end
end
-- A copy on the machine that had this node's name before: its absence here says nothing.
local function is_on_former_machine(name)
  local copy = noted_copy(name)
  return copy ~= nil and copy.engine_id ~= '' and copy.engine_id ~= engine_id
end
local function note_copy(name, epoch, mounted)
  local value = (epoch and string.format('%.0f', epoch) or '-') .. ' ' .. (engine_id == '' and '-' or engine_id)
    .. ' ' .. mounted
  local copy = noted_copy(name)
  if not copy then
    copy = { node = node }
    copies_of[name] = copies_of[name] or {}
    table.insert(copies_of[name], copy)
  end
  if copy.value ~= value then redis.call('HSET', copies, name .. ' ' .. node, value) end
  copy.epoch, copy.engine_id, copy.is_mounted, copy.value = epoch, engine_id, mounted == '1', value
  elsewhere[#elsewhere + 1] = name
end

local function set(volume_key, field, before, value)
  if (before or '') ~= value then set_or_delete(volume_key, field, value) end
end

-- Returns the copy that is the volume without doubt, or nil. `named` is the node in a backup.
local function choose(candidates, named)
  if #candidates == 1 then return candidates[1] end
  local youngest, mounted, of_backup, mounts, are_known, is_tie = nil, nil, nil, 0, true, false
  for _, copy in ipairs(candidates) do
    if copy.is_mounted then mounts, mounted = mounts + 1, copy end
    if copy.node == named then of_backup = copy end
    if not copy.epoch then
      are_known = false
    elseif not youngest or copy.epoch > youngest.epoch then
      youngest, is_tie = copy, false
    elseif copy.epoch == youngest.epoch then
      is_tie = true
    end
  end
  if mounts > 1 then return nil end
  if are_known and not is_tie then
    -- A pod runs on an older copy: only a person knows which one is wanted.
    if mounted and mounted ~= youngest then return nil end
    return youngest
  end
  return mounted or of_backup
end

local function note_conflict(volume_key, name, service, candidates, known_conflict)
  local nodes = {}
  for _, copy in ipairs(candidates) do nodes[#nodes + 1] = copy.node end
  table.sort(nodes)
  local conflict = table.concat(nodes, ' ')
  if conflict == (known_conflict or '') then return end
  redis.call('HSET', volume_key, 'conflict', conflict)
  redis.call('SADD', problems, name)
  redis.call('SADD', volumes, name)
  emit('service', service, 'VolumeConflict', service, node, '', 'volume ' .. name .. ' has copies on '
    .. table.concat(nodes, ' and ') .. ', and which one is wanted is not known: no pod gets it until `kubeleet volume bind '
    .. name .. ' NODE` says so')
end

local function settle(v, record)
  local volume_key = volume_keys(v)
  local name, service, source, replica, space = volume_args(v)
  local holder, _, restored, holding_engine, epoch, found, conflict, _, mounted = unpack(record, 1, 9)
  epoch = tonumber(epoch)
  local candidates = candidate_copies(given_up, name, copies_of[name], holder, epoch)
  local has_holder = false
  for _, copy in ipairs(candidates) do has_holder = has_holder or copy.node == holder end
  -- Its node notes no copy while nothing is wrong.
  if holder and not restored and found == '1' and not has_holder then
    candidates[#candidates + 1] =
      { node = holder, epoch = epoch, engine_id = holding_engine or '', is_mounted = mounted == '1' }
  end
  if #candidates == 0 then return end
  local copy = choose(candidates, restored and holder)
  local is_of_holder = copy and copy.node == holder
  -- The backup names a younger copy than all present ones: that one is lost, and no older one replaces it.
  if copy and not is_of_holder and restored and epoch and not copy.is_mounted then
    if not copy.epoch then copy = nil
    elseif copy.epoch < epoch then
      redis.call('HDEL', volume_key, 'restored')
      return
    end
  end
  if not copy then
    if not holder then
      redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
        'space', space, 'state', 'bound', 'created_at', STAMP)
    end
    return note_conflict(volume_key, name, service, candidates, conflict)
  end
  if holder and not is_of_holder then
    emit('service', service, 'VolumeMoved', service, copy.node, '', 'volume ' .. name .. ' is on ' .. copy.node
      .. ', and not on ' .. holder .. (restored and ' as in the backup' or ': its copy there is older'))
  end
  redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
    'node', copy.node, 'engine_id', copy.engine_id, 'space', space, 'state', 'bound', 'found', 1)
  redis.call('HSETNX', volume_key, 'created_at', STAMP)
  -- Its service may be lost as well, rather than deleted.
  if not holder then redis.call('HSET', volume_key, 'recovered', 1) end
  set(volume_key, 'epoch', nil, copy.epoch and string.format('%.0f', copy.epoch) or '')
  redis.call('HDEL', volume_key, 'restored', 'conflict', 'lost', 'mounted')
  redis.call('HDEL', copies, name .. ' ' .. copy.node)
  redis.call('SADD', volumes, name)
  redis.call('SREM', problems, name)
  needs_scheduler = true
  if copy.node == node and here[name] then
    present = present + 1
    elsewhere[#elsewhere] = nil
  end
end

local function is_here(v, record)
  local volume_key = volume_keys(v)
  local name, service, _, _, _, epoch, mounted = volume_args(v)
  local _, _, _, holding_engine, known_epoch, found, _, lost, mounted_before = unpack(record, 1, 9)
  local known, own = tonumber(known_epoch), tonumber(epoch)
  local is_same_engine = (holding_engine or '') == '' or holding_engine == engine_id
  if known and own and own < known then
    -- A copy of the machine that had the name before, or an older state of the disk was restored.
    note_copy(name, own, mounted)
    if is_same_engine and found == '1' and not lost then
      note_lost(problems, volume_key, name, service, node, node .. ' has an older copy of it')
    end
    return
  end
  present = present + 1
  forget_copy(name)
  -- The list may have been another program's and begun anew.
  redis.call('SADD', volumes, name)
  -- It is here, whatever id its engine had before.
  if (holding_engine or '') ~= engine_id then redis.call('HSET', volume_key, 'engine_id', engine_id) end
  set(volume_key, 'found', found, '1')
  if own then set(volume_key, 'epoch', known_epoch, epoch) end
  set(volume_key, 'mounted', mounted_before, mounted == '1' and '1' or '')
  if lost then
    redis.call('HDEL', volume_key, 'lost')
    redis.call('SREM', problems, name)
    emit('service', service, 'VolumeFound', service, node, '', 'volume ' .. name .. ' is on ' .. node .. ' again')
  end
end

local function is_present(v, record)
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, epoch, mounted = volume_args(v)
  local holder, state, restored, _, known_epoch, _, conflict = unpack(record, 1, 7)
  if not tonumber(replica) then
    -- Every node with the directory reports a shared volume.
    if not state then
      redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
        'space', space, 'state', 'bound', 'created_at', STAMP)
      redis.call('SADD', volumes, name)
    end
    return
  end
  here[name] = true
  epoch = tonumber(epoch)
  local is_certain = holder and not restored and not conflict
  if is_certain and holder == node then return is_here(v, record) end
  note_copy(name, epoch, mounted)
  known_epoch = tonumber(known_epoch)
  -- The record is older than this copy: an older state of Redis was restored.
  local is_younger = epoch and known_epoch and epoch > known_epoch and not is_given_up(given_up, name, epoch)
  if (not is_certain or (is_younger and state ~= 'removing')) and can_settle() then settle(v, record) end
end

local function is_removed(v, record)
  local volume_key = volume_keys(v)
  local name, service = volume_args(v)
  redis.call('SREM', removals, name)
  redis.call('SREM', reported, name)
  forget_copy(name)
  if record[1] ~= node or record[2] ~= 'removing' then return end
  redis.call('DEL', volume_key)
  redis.call('SREM', volumes, name)
  redis.call('SREM', problems, name)
  -- Copies of absent machines do not take its place.
  note_given_up(given_up, name, record[5], copies_of[name])
  emit('service', service, 'VolumeRemoved', service, node, '', 'volume ' .. name .. ' was removed')
  needs_scheduler = true
end

local function is_missing(v, record)
  local volume_key = volume_keys(v)
  local name, service = volume_args(v)
  local holder, state, restored, holding_engine, _, found, conflict, lost = unpack(record, 1, 8)
  local is_certain = holder and not restored and not conflict
  if is_on_former_machine(name) and not is_certain then
    -- The volume stays there: its pod waits for that machine, or for an operator.
    if can_settle() then settle(v, record) end
    return
  end
  redis.call('SREM', reported, name)
  forget_copy(name)
  if conflict and holder == node then redis.call('HDEL', volume_key, 'found') end
  local is_same_engine = (holding_engine or '') == '' or holding_engine == engine_id
  if holder == node and state ~= 'removing' and found == '1' and is_same_engine
    and not (restored or conflict or lost) then
    note_lost(problems, volume_key, name, service, node,
      'the container engine of ' .. node .. ' does not have it any more')
  end
end

for v = 1, volume_count do
  local _, _, _, _, _, _, _, change = volume_args(v)
  if change == 'removed' then is_removed(v, records[v])
  elseif change == 'missing' then is_missing(v, records[v])
  else is_present(v, records[v]) end
end

local missing = {}
if is_whole == '1' then
  local was_here = {}
  for _, name in ipairs(seen_before) do
    was_here[name] = true
    if not here[name] then missing[#missing + 1] = name end
  end
  for name in pairs(copies_of) do
    if not here[name] and not is_on_former_machine(name) then
      forget_copy(name)
    elseif not here[name] and not was_here[name] then
      missing[#missing + 1] = name
    end
  end
  -- Sets have no order, but two runs of the simulator must be equal.
  table.sort(missing)
  for name in pairs(here) do
    if not was_here[name] then redis.call('SADD', reported, name) end
  end
  if seen_run ~= '' then redis.call('HSET', node_key, 'volumes', present) end
end
-- A pod may wait for a volume without data, or for this report.
if needs_scheduler then wake_schedulers() end
-- After the last report the other nodes settle their copies.
if is_complete and can_settle() then
  local woken = {}
  for _, of_volume in pairs(copies_of) do
    for _, copy in ipairs(of_volume) do
      if copy.node ~= node and not woken[copy.node] then
        woken[copy.node] = true
        redis.call('PUBLISH', 'wake:' .. copy.node, 'volumes')
      end
    end
  end
end
return { 'OK', redis.call('SMEMBERS', removals), elsewhere, current_run, missing }

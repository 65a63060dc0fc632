-- Lua code that scripts share. KEYS[1] is always `events`, KEYS[2] always `meta`.
--
-- A part is a `local` in the first column with all lines up to the next one. A script gets the parts that it
-- needs (`scripts/prelude.rs`).
--
-- The store adds functions that read keys and arguments, in the order of `scripts/table.rs`:
--   head_keys(), head_args()   the keys and arguments of the whole call, in the order of the table
--   pod_count                  the number of items of the batch `pod`
--   pod_keys(i), pod_args(i)   the keys and arguments of its item `i`, counted from 1
--   head_resources(), pod_resources(i)   the amounts that the table calls `resources`, ordered as RESOURCES
--
-- Rules: read first, write later. A wrong type raises WRONGTYPE before anything was written; an error after
-- the first write is not rolled back. Time is Redis TIME, in milliseconds.

local EVENTS, META = KEYS[1], KEYS[2]
local MAX_EVENTS = 20000
local MIN_EVENTS = 1000
local TOMBSTONE_SECONDS = 3600
-- `cpu` is a field of a pod or node, `used_cpu` of a node.
local RESOURCES = { 'cpu', 'memory', 'pids', 'disk' }
local RESOURCE_COUNT = #RESOURCES
-- Exact in a Lua number, and HINCRBY can add some thousand of them. `MAX_MEMORY_BYTES` in `spec.rs` holds
-- users below it.
local MAX_AMOUNT = 2 ^ 50

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local NOW = now_ms()
-- Redis is slow at writing a number that comes from Lua.
local STAMP = string.format('%.0f', NOW)

-- Reads a stored time, or nil. A future time, of a former master whose clock was ahead, counts as now.
-- Callers that measure silence write it back, or nothing would ever be silent.
local function past(time)
  time = tonumber(time)
  if not time or time ~= time then return nil end
  return time < NOW and time or NOW
end
local function is_no_past(time)
  time = tonumber(time)
  return not (time and time <= NOW)
end

local function set_or_delete(key, field, value)
  if value == '' then redis.call('HDEL', key, field) else redis.call('HSET', key, field, value) end
end

-- Moves away a key of another program; `status` names it.
local function set_aside(key)
  redis.call('RENAME', key, 'broken:' .. key)
end
local function is_error(reply, pattern)
  return type(reply) == 'table' and reply.err and string.find(reply.err, pattern) ~= nil
end

-- Redis checks `maxmemory` only at the first write of a script. This one adds nothing, whatever the type. Its
-- other errors (no master, too few replicas) come again at the first real write.
local function allow_at_maxmemory()
  redis.pcall('PERSIST', META)
end

-- A stream of another type or with the greatest possible id takes no entries: set aside.
local function add_event(kept, ...)
  local reply = redis.pcall('XADD', EVENTS, 'MAXLEN', '~', kept, '*', ...)
  if not is_error(reply, '') then return end
  if is_error(reply, 'WRONGTYPE') or is_error(reply, 'exhausted') then set_aside(EVENTS) end
  redis.call('XADD', EVENTS, 'MAXLEN', '~', kept, '*', ...)
end

local function emit(kind, object, reason, name, node, phase, message)
  add_event(MAX_EVENTS, 'kind', kind, 'object', object, 'reason', reason,
    'name', name or '', 'node', node or '', 'phase', phase or '', 'message', message)
end

-- One entry for many pods costs a fraction of one for each; readers see one event for each. `pods` has lines
-- "uuid name node message", with '-' for no node.
local function batch_event(reason, phase)
  return { reason = reason, phase = phase, lines = {} }
end
local function add(event, uuid, name, node, message)
  local lines = event.lines
  lines[#lines + 1] = uuid .. ' ' .. name .. ' ' .. (node == '' and '-' or node) .. ' ' .. message
end
local function emit_batch(event)
  local count = #event.lines
  if count == 0 then return end
  -- Long entries push out as many old entries as they have events.
  local kept = MAX_EVENTS
  if count > 1 then
    local entries = redis.pcall('XLEN', EVENTS)
    -- `events` only informs: a key of another type stops nothing.
    if type(entries) ~= 'number' then entries = 0 end
    kept = math.min(MAX_EVENTS, math.max(MIN_EVENTS, entries - count))
  end
  add_event(kept, 'kind', 'pods', 'reason', event.reason, 'phase', event.phase,
    'pods', table.concat(event.lines, '\n'))
end

local function run_id()
  local info = redis.call('INFO', 'server')
  local _, last = string.find(info, 'run_id:', 1, true)
  return string.match(info, '^%x+', last + 1)
end

-- A key of another type is set aside; as a pause may be under way, the master counts as changed now.
local function read_meta(...)
  local fields = redis.pcall('HMGET', META, ...)
  if not is_error(fields, '') then return fields end
  if is_error(fields, 'WRONGTYPE') then
    set_aside(META)
    redis.call('HSET', META, 'run_id', run_id(), 'changed_at', STAMP)
  end
  return redis.call('HMGET', META, ...)
end

-- Room or a node appeared. A scheduler that has read the nodes before parks no pod: see `park`. If the count
-- is lost, a pod may wait for its backoff.
local function wake_schedulers()
  redis.pcall('HINCRBY', META, 'freed', 1)
  redis.call('PUBLISH', 'wake:scheduler', 'capacity')
end

-- Returns when this Redis became master or restarted (ms, 0 if never), and its run id. The first script that
-- asks records a change; no script acts on a new master without asking. `meta`: these two fields, if read.
local function read_master(meta)
  local current = run_id()
  local known, changed_at = unpack(meta or read_meta('run_id', 'changed_at'), 1, 2)
  if known == current then
    if is_no_past(changed_at) then
      -- A pause must neither end early nor last until the clock has caught up.
      redis.call('HSET', META, 'changed_at', STAMP)
      return NOW, current
    end
    return tonumber(changed_at), current
  end
  changed_at = known and NOW or 0
  redis.call('HSET', META, 'run_id', current, 'changed_at', changed_at)
  if known then
    emit('cluster', 'redis', 'MasterChanged', '', '', '',
      'the Redis master changed or was restarted: pod starts and declarations of dead nodes pause')
  end
  return changed_at, current
end
local function master_changed_at()
  return (read_master())
end

local function master_run()
  local changed_at, current = read_master()
  return current .. ':' .. string.format('%.0f', changed_at)
end

-- The field of `volumes:reports` for a machine whose name another one has now. No node can have this name.
local function former_machine(node, engine_id) return node .. ' ' .. engine_id end

-- Nodes that have not reported their persistent volumes to this run of Redis may have the data of a volume
-- whose record it has lost.
local function unreported_nodes(reports)
  local current, nodes, fields = master_run(), {}, redis.call('HGETALL', reports)
  for f = 1, #fields, 2 do
    if fields[f + 1] ~= current then nodes[#nodes + 1] = fields[f] end
  end
  return nodes
end

-- A pattern takes tens of milliseconds on a megabyte that another program may have written.
local function match_short(text, pattern)
  if #text <= 1000 then return string.match(text, pattern) end
end

-- Returns the copies that no record names, by volume. `volumes:copies` has "<volume> <node>": "<epoch>
-- <engine id> <1 if a pod has it>", with '-' for unknown. The epoch is when the copy's volume was bound: the
-- greater is younger.
local function read_copies(copies)
  local by_volume, fields = {}, redis.call('HGETALL', copies)
  for f = 1, #fields, 2 do
    local name, node = match_short(fields[f], '^(%S+) (%S+)$')
    local epoch, engine_id, mounted = match_short(fields[f + 1], '^(%S+) (%S+) ([01])$')
    if name and epoch then
      local of_volume = by_volume[name] or {}
      by_volume[name] = of_volume
      of_volume[#of_volume + 1] = { node = node, epoch = tonumber(epoch), value = fields[f + 1],
        engine_id = engine_id == '-' and '' or engine_id, is_mounted = mounted == '1' }
    end
  end
  return by_volume
end

-- A copy that an operator gave up stays listed, and comes back only on request.
local function is_given_up(given_up, name, epoch)
  local at = tonumber(redis.call('ZSCORE', given_up, name))
  return at ~= nil and not (epoch and epoch > at)
end
-- Gives up all present copies, known or not. A former master's clock may have been ahead, so epochs of the
-- record and of known copies count too. The last 10,000 volumes are remembered.
local function note_given_up(given_up, name, epoch, of_volume)
  local at = math.max(NOW, tonumber(epoch) or 0)
  for _, copy in ipairs(of_volume or {}) do at = math.max(at, copy.epoch or 0) end
  redis.call('ZADD', given_up, 'GT', string.format('%.0f', at), name)
  redis.call('ZREMRANGEBYRANK', given_up, 0, -10001)
end
local function next_epoch(given_up, name, of_volume)
  local epoch = math.max(NOW, (tonumber(redis.call('ZSCORE', given_up, name)) or 0) + 1)
  for _, copy in ipairs(of_volume or {}) do epoch = math.max(epoch, (copy.epoch or 0) + 1) end
  return string.format('%.0f', epoch)
end
-- `holder` and `epoch` are those of the record: its own copy was not given up.
local function candidate_copies(given_up, name, of_volume, holder, epoch)
  local candidates = {}
  for _, copy in ipairs(of_volume or {}) do
    if (copy.node == holder and copy.epoch == epoch) or not is_given_up(given_up, name, copy.epoch) then
      candidates[#candidates + 1] = copy
    end
  end
  return candidates
end
local function note_lost(problems, volume_key, name, service, node, why)
  redis.call('HSET', volume_key, 'lost', STAMP)
  redis.call('SADD', problems, name)
  emit('service', service, 'VolumeLost', service, node, '', 'volume ' .. name .. ' is lost: ' .. why
    .. '. Its pod waits: `kubeleet volume rm ' .. name .. '` begins anew on an empty volume')
end

-- Returns the rest of the pause after a change of the master, in ms. `meta`: see `read_master`.
local function pause_left(pause_ms, meta)
  local changed_at = read_master(meta)
  local left = changed_at + pause_ms - NOW
  return left > 0 and left or 0
end

-- Returns the fence and dead times of this session in ms, or nothing. `LONGEST_DEAD_AFTER` of `timing.rs`
-- limits them: no value written by hand keeps a dead node alive for ever.
local LONGEST_DEAD_AFTER_MS = 3600000
local function registered_times(times, incarnation)
  local fence, dead, owner = string.match(times or '', '^%d+ (%d+) (%d+) (%S+)$')
  if owner and owner == incarnation then
    return math.min(tonumber(fence), LONGEST_DEAD_AFTER_MS), math.min(tonumber(dead), LONGEST_DEAD_AFTER_MS)
  end
end

-- Returns the longest fence of all nodes in ms, and when a node with it was last heard. A new master may not
-- know where a pod was given to: it runs there until that node's lease has ended.
local function read_longest_fence(text)
  local fence, heard_at = string.match(text or '', '^(%d+) (%d+)$')
  if not fence then return 0, 0 end
  return math.min(tonumber(fence), LONGEST_DEAD_AFTER_MS), past(heard_at) or NOW
end
-- A longer fence, which no node has had for an hour nor since the master changed, is forgotten: a mistaken
-- setting must not last.
local function note_fence(fence, text, changed_at)
  local longest, heard_at = read_longest_fence(text)
  local is_over = NOW - math.max(heard_at, changed_at) > LONGEST_DEAD_AFTER_MS
  local is_due = fence == longest and NOW - heard_at > LONGEST_DEAD_AFTER_MS / 10
  if fence > longest or is_over or is_due then
    redis.call('HSET', META, 'longest_fence', string.format('%.0f', fence) .. ' ' .. STAMP)
  end
end

local PHASES = { pending = true, assigned = true, running = true, stopping = true, stopped = true,
  succeeded = true, failed = true }
local PLACED = { assigned = true, running = true, stopping = true }

-- Returns nil for a broken record, so that it affects no other pod of a batch.
local function read_record(pod_key, ...)
  local record = redis.pcall('HMGET', pod_key, 'phase', 'node', 'assignment', ...)
  if record.err then
    if redis.call('TYPE', pod_key).ok ~= 'hash' then return nil end
    return error(record.err)
  end
  local phase, node, assignment = unpack(record, 1, 3)
  local is_whole = PHASES[phase] and (not PLACED[phase] or ((node or '') ~= '' and (assignment or '') ~= ''))
  local is_none = not phase and not node and not assignment
  if is_whole or is_none then return record end
end

-- Cutting the id out costs less than one more argument.
local function uuid_of(pod_key) return string.sub(pod_key, #'pod:' + 1) end

-- Invariant 3.
local function is_fenced(node_key, incarnation)
  local node = redis.call('HMGET', node_key, 'incarnation', 'state')
  return node[1] ~= incarnation or node[2] ~= 'alive'
end

-- Makes any text a number from 0 to MAX_AMOUNT. Equal texts give equal numbers, so a release matches its
-- reservation.
local function bounded(amount)
  amount = tonumber(amount) or 0
  if not (amount > 0) then return 0 end
  return amount < MAX_AMOUNT and math.floor(amount) or MAX_AMOUNT
end

-- A sum that is no number or too large was written by hand. It begins anew, as an error between two writes
-- must not happen.
local function add_used(node_key, field, amount)
  if amount == 0 then return end
  if not is_error(redis.pcall('HINCRBY', node_key, field, string.format('%.0f', amount)), '') then return end
  redis.call('HSET', node_key, field, string.format('%.0f', amount > 0 and amount or 0))
end

-- Every change raises the revision.
local function versions_of(service_key)
  local generation, revision = unpack(redis.call('HMGET', service_key, 'generation', 'revision'), 1, 2)
  return tonumber(generation) or 0, tonumber(revision) or 0
end

-- Host ports are "443/udp 8080/tcp". The node's field `port:8080/tcp` has "<uuid> <name>" of the owner.
local function each_port(ports, visit)
  for port in string.gmatch(ports, '%S+') do visit('port:' .. port) end
end

-- A port of another pod stays: the container engine refuses the second.
local function reserve_ports(node_key, pod_key, uuid, name, ports)
  if ports == '' then return end
  redis.call('HSET', pod_key, 'ports', ports)
  each_port(ports, function(field) redis.call('HSETNX', node_key, field, uuid .. ' ' .. name) end)
end

local function is_held_by(holder, uuid)
  return string.sub(holder, 1, #uuid + 1) == uuid .. ' '
end

-- Ids of named resources are "gpu/0 slots/3" in a pod. The node's field `id:gpu/0` has "<uuid> <name>" of the
-- pod that was given it.
local function each_id(ids, visit)
  for id in string.gmatch(ids, '%S+') do visit('id:' .. id) end
end
local function reserve_ids(node_key, pod_key, uuid, name, ids)
  redis.call('HSET', pod_key, 'ids', ids)
  each_id(ids, function(field) redis.call('HSETNX', node_key, field, uuid .. ' ' .. name) end)
end

local function reserve(node_key, pods, amounts)
  add_used(node_key, 'used_pods', pods)
  -- `usage_correct` changes nothing if this has grown since its caller read the node.
  add_used(node_key, 'reservations', pods)
  for r = 1, RESOURCE_COUNT do add_used(node_key, 'used_' .. RESOURCES[r], bounded(amounts[r])) end
end

local function release(node_key, pod_key)
  if redis.call('EXISTS', node_key) == 0 then return end
  local amounts = redis.call('HMGET', pod_key, 'ports', 'ids', unpack(RESOURCES))
  local ports, ids = table.remove(amounts, 1), table.remove(amounts, 1)
  local function release_field(field)
    local holder = redis.call('HGET', node_key, field)
    if holder and is_held_by(holder, uuid_of(pod_key)) then redis.call('HDEL', node_key, field) end
  end
  if ports then each_port(ports, release_field) end
  if ids then each_id(ids, release_field) end
  if ids then redis.call('HDEL', pod_key, 'ids') end
  add_used(node_key, 'used_pods', -1)
  for r = 1, RESOURCE_COUNT do add_used(node_key, 'used_' .. RESOURCES[r], -bounded(amounts[r])) end
end

-- `uq_class` has "<class> <since>" of each pod, `uq_by_class` has "<class> <since> <uuid>", all with the
-- score 0: a class is a range, its oldest pod first.
local function check_class_types(uq_class, uq_by_class)
  redis.call('HLEN', uq_class)
  redis.call('ZCARD', uq_by_class)
end
local function class_range(class) return '[' .. class .. ' ', '(' .. class .. '!' end
local function leave_class(uq_class, uq_by_class, uuid)
  local entry = redis.call('HGET', uq_class, uuid)
  if not entry then return end
  redis.call('HDEL', uq_class, uuid)
  redis.call('ZREM', uq_by_class, entry .. ' ' .. uuid)
end
local function forget_unschedulable(uq, uq_at, uq_why, uq_class, uq_by_class, uuid)
  redis.call('HDEL', uq, uuid)
  redis.call('ZREM', uq_at, uuid)
  redis.call('HDEL', uq_why, uuid)
  leave_class(uq_class, uq_by_class, uuid)
end
-- Returns class, uuid and time of the first pod in a range. Entries without a pod are removed: the version
-- before leaves them.
local function first_of_class(uq, uq_class, uq_by_class, from, to)
  for _ = 1, 1000 do
    local entry = redis.call('ZRANGEBYLEX', uq_by_class, from, to, 'LIMIT', 0, 1)[1]
    if not entry then return end
    local class, since, uuid = match_short(entry, '^(%S+) (%d+) (.+)$')
    if uuid and redis.call('HGET', uq_class, uuid) == class .. ' ' .. since then
      if redis.call('HEXISTS', uq, uuid) == 1 then return class, uuid, since end
      redis.call('HDEL', uq_class, uuid)
    end
    redis.call('ZREM', uq_by_class, entry)
  end
end

local function set_resources(key, amounts)
  for r = 1, RESOURCE_COUNT do redis.call('HSET', key, RESOURCES[r], amounts[r] or 0) end
end

-- The last arguments are further fields and values, with the phase.
local function create_pushed_pod(pod_key, pushed, uuid, name, image, replica, payload, amounts, ...)
  redis.call('HSET', pod_key, 'name', name, 'replica', replica, 'image', image, 'generation', 0,
    'created_at', STAMP, 'since', STAMP, 'payload', payload, ...)
  set_resources(pod_key, amounts)
  redis.call('SADD', pushed, uuid)
end

-- Room on a node that is kept for a pod: "<uuid> <since> <until> <amounts as in RESOURCES>". Returns the uuid
-- and the amounts while that holds. A time of a former master whose clock was ahead keeps nothing.
local MAX_NOMINATION_MS = 900000
local function read_nomination(text)
  local uuid, since, till, rest = match_short(text or '', '^(%S+) (%d+) (%d+) (.*)$')
  if not uuid or is_no_past(since) then return nil end
  if NOW >= tonumber(till) or NOW - tonumber(since) > MAX_NOMINATION_MS then return nil end
  local amounts = {}
  for amount in string.gmatch(rest, '%d+') do amounts[#amounts + 1] = bounded(amount) end
  return uuid, amounts
end

-- The caller queues the payload.
local function return_to_pending(pod_key, reason, message)
  redis.call('HSET', pod_key, 'phase', 'pending', 'since', STAMP, 'attempts', 0, 'reason', reason,
    'message', message)
  redis.call('HDEL', pod_key, 'node', 'assignment', 'address', 'engine_id')
end

local function check_wanted_type(wanted_key)
  redis.call(wanted_key == 'pushed' and 'SCARD' or 'HLEN', wanted_key)
end

-- A replica has two places in the slots: `3`, and `3+` for a pod that starts before the one it replaces is
-- stopped. Frees the pod's place; a pod in the second one moves to the first. Returns whether anything
-- changed.
local function vacate_slot(slots, replica, uuid)
  local second = replica .. '+'
  if (redis.call('HGET', slots, replica) or '') == uuid then
    local successor = redis.call('HGET', slots, second)
    if not successor then return redis.call('HDEL', slots, replica) == 1 end
    redis.call('HSET', slots, replica, successor)
  elseif redis.call('HGET', slots, second) ~= uuid then
    return false
  end
  redis.call('HDEL', slots, second)
  return true
end

local function has_slot(slots, replica, uuid)
  return redis.call('HGET', slots, replica) == uuid or redis.call('HGET', slots, replica .. '+') == uuid
end

-- Returns the number of the step. A scheduler reads `step` before the pods: of two with the same state only
-- one acts, the other gets nil.
local function take_step(service_key, seen_step)
  local step = redis.call('HGET', service_key, 'step') or ''
  if step ~= seen_step then return nil end
  local next_step = string.format('%.0f', bounded(step) + 1)
  redis.call('HSET', service_key, 'step', next_step)
  return next_step
end

-- The record stays for a while as a tombstone, so that a late copy of the payload starts nothing. Returns the
-- service, if any.
local function forget_pod(pod_key, wanted_key, uuid)
  local service, replica = unpack(redis.call('HMGET', pod_key, 'service', 'replica'), 1, 2)
  if service then
    vacate_slot(wanted_key, replica, uuid)
  else
    redis.call('SREM', wanted_key, uuid)
  end
  redis.call('EXPIRE', pod_key, TOMBSTONE_SECONDS)
  return service
end

-- The caller calls `endpoint`, then `request_stop`.
local function begin_stopping(pod_key, reason, message)
  redis.call('HSET', pod_key, 'phase', 'stopping', 'since', STAMP, 'reason', reason, 'message', message)
end
local function request_stop(stop_set, uuid, node)
  if redis.call('SADD', stop_set, uuid) == 1 then redis.call('PUBLISH', 'wake:' .. node, 'stop') end
end

-- `runs` has a line "<id> <JSON>" for each ended run, with ids unique in the pod. Known runs are not added
-- again.
local function note_containers(pod_key, containers, kept_runs, runs)
  if containers ~= '' then redis.call('HSET', pod_key, 'containers', containers) end
  if runs == '' then return end
  local known = redis.call('HGET', pod_key, 'runs') or ''
  local lines = {}
  for line in known:gmatch('[^\n]+') do lines[#lines + 1] = line end
  for id, run in runs:gmatch('(%S+) ([^\n]+)') do
    if not known:find('"id":"' .. id .. '"', 1, true) then lines[#lines + 1] = STAMP .. ' ' .. run end
  end
  local first = math.max(1, #lines - tonumber(kept_runs) + 1)
  redis.call('HSET', pod_key, 'runs', table.concat(lines, '\n', first))
end

-- Returns completions and failed pods of a running job, or nil. Another check reports a wrong type.
local function running_job(service_key)
  local job = redis.pcall('HMGET', service_key, 'kind', 'state', 'replicas', 'ended_at', 'failures')
  if job.err then return nil end
  local kind, state, completions, ended_at, failures = unpack(job, 1, 5)
  if kind ~= 'job' or state ~= 'active' or ended_at then return nil end
  return tonumber(completions) or 0, bounded(failures)
end

local function failures_of(tries, index)
  return bounded(string.match(redis.call('HGET', tries, index) or '', '^%d+'))
end

-- "<failures of its index> <time> <node> <exit code> <run>"; the run is the last one as JSON, or empty.
local function job_result(pod_key, failures)
  local node, exit_code, runs = unpack(redis.call('HMGET', pod_key, 'node', 'exit_code', 'runs'), 1, 3)
  local run = string.match(runs or '', '(%b{})%s*$') or ''
  return string.format('%.0f', failures) .. ' ' .. STAMP .. ' ' .. (node and node ~= '' and node or '-') .. ' '
    .. (exit_code and exit_code ~= '' and exit_code or '-') .. ' ' .. run
end

-- `failure` is '', or a word and a sentence.
local function end_job(service_key, service, completions, failure)
  redis.call('HSET', service_key, 'ended_at', STAMP)
  if failure == '' then
    emit('service', service, 'JobCompleted', service, '', '',
      string.format('%.0f', completions) .. (completions == 1 and ' completion' or ' completions'))
  else
    redis.call('HSET', service_key, 'failure', failure)
    emit('service', service, 'JobFailed', service, '', '', failure)
  end
  redis.call('PUBLISH', 'wake:reconcile', service)
end

-- Counts each index once, whatever pod it was. The last one completes the job.
local function count_completion(service_key, done, tries, service, index, pod_key)
  local completions = running_job(service_key)
  if not completions or not tonumber(index) or tonumber(index) >= completions then return false end
  local is_new = redis.call('HSETNX', done, index, job_result(pod_key, failures_of(tries, index))) == 1
  if redis.call('HLEN', done) >= completions then end_job(service_key, service, completions, '') end
  return is_new
end

local function count_failure(service_key, done, tries, index, pod_key)
  local completions, failures = running_job(service_key)
  if not completions or not tonumber(index) or redis.call('HEXISTS', done, index) == 1 then return end
  redis.call('HSET', tries, index, job_result(pod_key, failures_of(tries, index) + 1))
  redis.call('HSET', service_key, 'failures', string.format('%.0f', failures + 1))
end

local function end_stopped(node_key, stop_set, pod_key, wanted_key, uuid)
  redis.call('HSET', pod_key, 'phase', 'stopped', 'since', STAMP)
  redis.call('SREM', stop_set, uuid)
  release(node_key, pod_key)
  local service = forget_pod(pod_key, wanted_key, uuid)
  if service then redis.call('PUBLISH', 'wake:reconcile', service) end
end

-- Notes an unconfirmed write: "<id> <time> <owed>". `owed` is 1 if an earlier write was unconfirmed, too:
-- then an event announces the confirmation. It comes first in a script, even if nothing else changes: WAIT
-- needs a write.
local function note_unconfirmed(unconfirmed, service, write)
  local owed = redis.call('HEXISTS', unconfirmed, service)
  redis.call('HSET', unconfirmed, service, write .. ' ' .. STAMP .. ' ' .. owed)
end

-- `specs_expire` notices by the id of the write, which is unique. Another check reports a wrong type of
-- `meta`.
local function reuse_spec(former_specs, spec, write)
  if redis.call('SREM', former_specs, spec) == 1 then redis.pcall('HSET', META, 'spec_reused_by', write) end
end

-- Returns 'good' if all pods were, now or when it had this specification before; or why it has failed.
-- `known` is its fingerprint, `failure` why it is taken back, or ''.
local function outcome_of(service_key, generation, known, failure)
  local marks = redis.call('HMGET', service_key, 'settled', 'was_good', 'paused', 'held')
  local settled, was_good, paused, held = unpack(marks, 1, 4)
  local number = string.format('%.0f', generation)
  local function about(mark)
    local of, text = string.match(mark or '', '^(%d+) ?(.*)$')
    return of == number and text or nil
  end
  if about(settled) or was_good == number then return 'good' end
  local function in_a_line(text) return (string.gsub(text, '[\r\n]+', ' ')) end
  if failure ~= '' then return 'rolled_back ' .. in_a_line(failure) end
  local why = about(paused)
  if why == 'paused by hand' then why = nil end
  why = why or about(held)
  if why then return 'failed ' .. in_a_line(why) end
  -- After a restart it has the fingerprint of the good one, but may have other images.
  return known ~= '' and string.match(settled or '', ' (%x+)$') == known and 'good' or ''
end

-- Notes the current specification in the history: field <generation>, value "<time until which it was wanted,
-- ms> <fingerprint> <outcome>\n<specification>". Each one stands once for each content of its images, the
-- current one not at all. Unreadable entries go. `coming.spec` follows; `coming.text` and
-- `coming.fingerprint` are there if it differs. The service has `former_spec:<generation>` with the id, and
-- `images:<id>`.
local MAX_FORMER = 10
local function note_former(service_key, history, former_specs, coming)
  local current, current_text, current_fingerprint = unpack(
    redis.call('HMGET', service_key, 'spec', 'spec_text', 'fingerprint'), 1, 3)
  local generation = versions_of(service_key)
  local kept = {}
  current = current or ''
  local known = string.sub(current_fingerprint or '', 1, #current + 1) == current .. ' '
    and string.sub(current_fingerprint, #current + 2) or ''
  local function spec_of(number) return redis.call('HGET', service_key, 'former_spec:' .. number) end
  local function images_of(spec) return redis.call('HGET', service_key, 'images:' .. spec) or '' end
  local entries = redis.call('HGETALL', history)
  for f = 1, #entries, 2 do
    local number = string.match(entries[f], '^%d+$') and tonumber(entries[f])
    local fingerprint, words, text = string.match(entries[f + 1], '^%d+ (%x*)([^\n]*)\n(.*)$')
    local spec = spec_of(entries[f])
    local function is_as(other, other_text, other_fingerprint)
      return (text == other_text or (other_fingerprint ~= '' and fingerprint == other_fingerprint))
        and (not spec or spec == other or images_of(spec) == images_of(other))
    end
    local is_coming = coming.text and is_as(coming.spec, coming.text, coming.fingerprint)
    if is_coming and words == ' good' then
      redis.call('HSET', service_key, 'was_good', string.format('%.0f', generation + 1))
    end
    if number and number < generation and text and not is_coming and not is_as(current, current_text, known) then
      kept[#kept + 1] = entries[f]
    else
      redis.call('HDEL', history, entries[f])
    end
  end
  table.sort(kept, function(a, b) return tonumber(a) > tonumber(b) end)
  for f = #kept, MAX_FORMER, -1 do redis.call('HDEL', history, table.remove(kept)) end
  local named = { [current] = true, [coming.spec] = true }
  for _, number in ipairs(kept) do named[spec_of(number) or ''] = true end
  for _, field in ipairs(redis.call('HKEYS', service_key)) do
    local number, spec = string.match(field, '^former_spec:(.*)$'), string.match(field, '^images:(.*)$')
    if (number and redis.call('HEXISTS', history, number) == 0)
      or (spec and not named[spec] and redis.call('SISMEMBER', former_specs, spec) == 0) then
      redis.call('HDEL', service_key, field)
    end
  end
  if current_text then
    local number = string.format('%.0f', generation)
    redis.call('HSET', service_key, 'former_spec:' .. number, current)
    redis.call('HSET', history, number, STAMP .. ' ' .. known .. ' '
      .. outcome_of(service_key, generation, known, coming.failure) .. '\n' .. current_text)
  end
end

-- `ep:<service>` has a field for each running pod while a proxy follows the service. `v` counts changes, `m`
-- is when its master took over. While it is being made it has no `v`, and no change is published.
local followed, changed_endpoints = {}, {}
local function endpoint_line(ep_key, record)
  local phase, node, assignment, replica, reason, service = unpack(record, 1, 6)
  -- The slots were copied from those of another service.
  if 'ep:' .. (service or '') ~= ep_key then return nil end
  local is_running = phase == 'running'
  -- A record that waits for a node has these two fields, empty.
  local is_on_a_node = (node or '') ~= '' and (assignment or '') ~= ''
  if not (is_on_a_node and replica) or not (is_running or phase == 'stopping') then return nil end
  local state = not is_running and 'leaving' or (reason or '') == '' and 'ready' or 'running'
  return replica .. ' ' .. node .. ' ' .. assignment .. ' ' .. state
end

-- Called after the record was written; `publish_endpoints` ends the script. `ep_key` is 'ep:' without a
-- service.
local function endpoint(ep_key, pod_key, uuid)
  local is_followed = followed[ep_key]
  if is_followed == nil then
    -- A key of another type counts as none; `follow` moves it away.
    is_followed = ep_key ~= 'ep:' and redis.pcall('HEXISTS', ep_key, 'm') == 1
    followed[ep_key] = is_followed
  end
  if not is_followed then return end
  local record = redis.pcall('HMGET', pod_key, 'phase', 'node', 'assignment', 'replica', 'reason', 'service')
  local line = not record.err and endpoint_line(ep_key, record)
  if line == (redis.call('HGET', ep_key, uuid) or nil) then return end
  if line then redis.call('HSET', ep_key, uuid, line) elseif redis.call('HDEL', ep_key, uuid) == 0 then return end
  local changed = changed_endpoints[ep_key] or {}
  changed_endpoints[ep_key] = changed
  changed[#changed + 1] = line and uuid .. ' ' .. line or uuid
end

-- One message for each service: "<version> <master>", then a line for each pod, only its id if it is gone.
local function publish_endpoints()
  for ep_key, changed in pairs(changed_endpoints) do
    local version = redis.call('HGET', ep_key, 'v') and redis.pcall('HINCRBY', ep_key, 'v', 1)
    if type(version) == 'number' then
      redis.call('PUBLISH', ep_key, string.format('%.0f', version) .. ' ' .. redis.call('HGET', ep_key, 'm') .. '\n'
        .. table.concat(changed, '\n'))
    elseif version then
      redis.call('DEL', ep_key)
    end
  end
end

-- No other name gets a freed number within this time.
local ADDRESS_QUARANTINE_MS = 3600000
local function address_name(service, slot) return slot == '' and service or slot .. '.' .. service end
-- Both directions must agree.
local function address_number(addresses, name, first, count)
  local number, mark = string.match(redis.call('HGET', addresses, name) or '', '^(%d+)(.*)$')
  local value = tonumber(number)
  if not value or value < first or value >= first + count or number ~= string.format('%.0f', value) then return nil end
  if redis.call('HGET', addresses, '#' .. number) == name then return number, mark == '' end
end
-- `slot` is '' for the service itself. Completions of a job have none: they may outnumber the addresses.
local function has_address(service_key, slot, slot_share)
  local state, replicas, kind = unpack(redis.call('HMGET', service_key, 'state', 'replicas', 'kind'), 1, 3)
  if not state or slot == '' then return state and true end
  return (not kind or kind == 'global') and tonumber(slot) < math.min(tonumber(replicas) or 0, tonumber(slot_share))
end

-- Lines are "<route> <service> <port>"; field <route> of `routes` has the rest. A route belongs to one
-- service as long as that exists.
local function each_route(text, visit)
  for route, target in string.gmatch(text, '(%S+) ([^\n]+)') do visit(route, target) end
end
local function route_holder(routes, route)
  local target = redis.call('HGET', routes, route)
  return target and string.match(target, '^%S+')
end

local function if_another(services, service, other)
  if other and other ~= service and redis.call('SISMEMBER', services, other) == 1 then return other end
end

-- An alias may also be the name of a service of the app.
local function taken_route(routes, services, service, text)
  local taken, by
  each_route(text, function(route)
    if taken then return end
    local app, name = string.match(route, '^alias:([^/]+)/(.+)$')
    by = if_another(services, service, route_holder(routes, route))
      or if_another(services, service, app and app .. '-' .. name)
    taken = by and route
  end)
  return taken, by
end

local function alias_in_the_way(routes, services, app, service)
  local alias = 'alias:' .. app .. '/' .. string.sub(service, #app + 2)
  local holder = if_another(services, service, route_holder(routes, alias))
  if holder then return alias, holder end
end

local function write_routes(routes, services, service, before, after)
  local wanted, is_changed = {}, false
  each_route(after, function(route, target) wanted[route] = target end)
  each_route(before, function(route)
    if not wanted[route] and route_holder(routes, route) == service then
      is_changed = redis.call('HDEL', routes, route) == 1 or is_changed
    end
  end)
  for route, target in pairs(wanted) do
    local known = redis.call('HGET', routes, route)
    local holder = known and string.match(known, '^%S+')
    if known ~= target and not if_another(services, service, holder) then
      redis.call('HSET', routes, route, target)
      is_changed = true
    end
  end
  if is_changed then redis.call('PUBLISH', 'wake:routes', service) end
end

-- By service, the names of the others whose rules for placement name it.
local function write_relations(relations, service, before, after)
  local wanted, named = {}, {}
  for other in string.gmatch(after, '%S+') do wanted[other], named[other] = true, true end
  for other in string.gmatch(before, '%S+') do named[other] = true end
  for other in pairs(named) do
    local owners = {}
    for owner in string.gmatch(redis.call('HGET', relations, other) or '', '%S+') do
      if owner ~= service then owners[#owners + 1] = owner end
    end
    if wanted[other] then owners[#owners + 1] = service end
    if #owners == 0 then
      redis.call('HDEL', relations, other)
    else
      redis.call('HSET', relations, other, table.concat(owners, ' '))
    end
  end
end

-- A larger payload is sent to no process: the connection would be blocked for everything else.
local GIANT = 524288
local GIANT_KEPT = 1024
-- Beyond these limits the oldest are dropped, down to three quarters.
local MAX_DEAD_LETTERS, MAX_DEAD_LETTER_BYTES = 10000, 67108864

local function drop_old_dead_letters(dq)
  local length, kept, bytes = redis.call('LLEN', dq), 0, 0
  local max_kept, max_bytes = MAX_DEAD_LETTERS * 0.75, MAX_DEAD_LETTER_BYTES * 0.75
  local is_full = false
  while not is_full and kept < length do
    for _, entry in ipairs(redis.call('LRANGE', dq, kept, kept + 99)) do
      is_full = is_full or kept >= max_kept or (kept > 0 and bytes + #entry > max_bytes)
      if not is_full then kept, bytes = kept + 1, bytes + #entry end
    end
  end
  redis.pcall('HSET', META, 'dq_bytes', bytes)
  if kept == length then return end
  redis.call('LTRIM', dq, 0, kept - 1)
  emit('queue', dq, 'DeadLettersDropped', '', '', '', 'the ' .. (length - kept)
    .. ' oldest dead letters were dropped: there were too many')
end

-- The caller has checked the type of `dq`. After removals by hand the count of bytes is too high; then they
-- are counted again.
local function add_dead_letter(dq, dead_letter)
  local length = redis.call('LPUSH', dq, dead_letter)
  local bytes = redis.pcall('HINCRBY', META, 'dq_bytes', #dead_letter)
  local is_counted = type(bytes) == 'number'
  if not is_counted or bytes > MAX_DEAD_LETTER_BYTES or length > MAX_DEAD_LETTERS then
    drop_old_dead_letters(dq)
  end
end

-- The dead letter of a giant has its size, its SHA-1 and its first bytes in hex, since they are any bytes.
local function reject_giant(source, dq, queue, payload)
  if redis.call('LREM', source, -1, payload) == 0 then return end
  local first = string.gsub(string.sub(payload, 1, GIANT_KEPT), '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
  local reason = 'payload has ' .. #payload .. ' bytes, far more than are allowed; only its first '
    .. GIANT_KEPT .. ' bytes are kept; its SHA-1 is ' .. redis.sha1hex(payload)
  add_dead_letter(dq, '{"queue":"' .. queue .. '","payload":"' .. first .. '","encoding":"hex","bytes":'
    .. #payload .. ',"reason":"' .. reason .. '","at":' .. STAMP .. '}')
  emit('queue', queue, 'DeadLettered', '', '', '', reason)
end

local function without_giants(source, dq, queue, payloads)
  local has_giant = false
  for _, payload in ipairs(payloads) do has_giant = has_giant or #payload > GIANT end
  if not has_giant then return payloads end
  local sendable = {}
  for _, payload in ipairs(payloads) do
    if #payload <= GIANT then
      sendable[#sendable + 1] = payload
    else
      reject_giant(source, dq, queue, payload)
    end
  end
  return sendable
end

-- The record goes a month after the certificate's end, or after now: nothing else removes that of a host
-- without a rule. `not_after` is in seconds.
local function expire_certificate(certificate_key, not_after)
  local end_ms = bounded(not_after) * 1000
  redis.call('PEXPIREAT', certificate_key, string.format('%.0f', (end_ms > NOW and end_ms or NOW) + 30 * 86400000))
end

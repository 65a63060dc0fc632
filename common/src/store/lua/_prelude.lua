-- Put before every script. KEYS[1] is always `events`, KEYS[2] always `meta`.
-- Rules: read first, write after. Reading a key of the wrong type raises WRONGTYPE before anything was written;
-- an error after the first write would not be rolled back. Time is Redis TIME, in milliseconds.

local EVENTS, META = KEYS[1], KEYS[2]
local EVENTS_KEPT = 20000
local BATCHES_KEPT = 1000
local TOMBSTONE_SECONDS = 3600

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local NOW = now_ms()
-- The same as text: Redis takes long to write a number that comes from Lua.
local STAMP = string.format('%.0f', NOW)
local EVENTS_NOW = redis.call('XLEN', EVENTS)

local function emit(kind, object, reason, name, node, phase, message)
  redis.call('XADD', EVENTS, 'MAXLEN', '~', EVENTS_KEPT, '*', 'kind', kind, 'object', object, 'reason', reason,
    'name', name or '', 'node', node or '', 'phase', phase or '', 'message', message)
end

-- What happened to many pods at once is one entry of the stream, which costs a fraction of one for each: `pods` has a
-- line "uuid name node message" for each of them (node '-' where there is none). Readers see single events again.
local function story(reason, phase)
  return { reason = reason, phase = phase, lines = {} }
end
local function tell(of, uuid, name, node, message)
  local lines = of.lines
  lines[#lines + 1] = uuid .. ' ' .. name .. ' ' .. (node == '' and '-' or node) .. ' ' .. message
end
local function emit_story(of)
  local count = #of.lines
  if count == 0 then return end
  -- As many entries go as events come, down to a floor: else long entries would multiply what is kept.
  local kept = count == 1 and EVENTS_KEPT or math.min(EVENTS_KEPT, math.max(BATCHES_KEPT, EVENTS_NOW - count))
  redis.call('XADD', EVENTS, 'MAXLEN', '~', kept, '*', 'kind', 'pods', 'reason', of.reason, 'phase', of.phase,
    'pods', table.concat(of.lines, '\n'))
end

-- When this Redis took over from another (or was restarted): milliseconds, 0 when it never did.
-- The first to ask after a change writes it down; nobody can act on the new master without asking.
local function master_changed_at()
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local known = redis.call('HMGET', META, 'run_id', 'changed_at')
  if known[1] == run_id then
    return tonumber(known[2]) or 0
  end
  local changed_at = known[1] and NOW or 0
  redis.call('HSET', META, 'run_id', run_id, 'changed_at', changed_at)
  if known[1] then
    emit('cluster', 'redis', 'MasterChanged', '', '', '', 'another Redis answers now: starts and declarations of death pause')
  end
  return changed_at
end

-- Milliseconds for which something must still wait after a change of master.
local function pause_left(pause)
  local left = master_changed_at() + pause - NOW
  return left > 0 and left or 0
end

-- Whether a worker of this incarnation may still write. Invariant 3.
local function is_fenced(node_key, incarnation)
  local node = redis.call('HMGET', node_key, 'incarnation', 'state')
  return node[1] ~= incarnation or node[2] ~= 'alive'
end

-- Gives back what an assigned, running or stopping pod held on its node.
local function release(node_key, cpu, memory)
  if redis.call('EXISTS', node_key) == 0 then return end
  redis.call('HINCRBY', node_key, 'used_pods', -1)
  if (tonumber(cpu) or 0) > 0 then redis.call('HINCRBY', node_key, 'used_cpu', -cpu) end
  if (tonumber(memory) or 0) > 0 then redis.call('HINCRBY', node_key, 'used_memory', -memory) end
end

-- Looks at the type of the key where it stands that a pod is wanted, before anything is written.
local function look_at_wanted(key)
  redis.call(key == 'pushed' and 'SCARD' or 'HLEN', key)
end

-- Notes a write of a service as one that the replicas have not confirmed yet: "<id> <time> <owed>". Owed is 1 when an earlier
-- write was not confirmed either: this one stands for it now, and somebody waits to hear of it. Must be the first write of
-- a script. It is a write even where nothing else changes: WAIT waits for nothing less.
local function note_unconfirmed(key, name, id)
  local owed = redis.call('HEXISTS', key, name)
  redis.call('HSET', key, name, id .. ' ' .. STAMP .. ' ' .. owed)
end

-- Forgets that a stopped pod was wanted: frees its slot (or its place among the pushed pods) and lets the record
-- live on as a tombstone for a while, so that a late copy of its payload starts nothing.
local function bury(pod_key, wanted_key, service, replica, uuid)
  if service then
    if redis.call('HGET', wanted_key, replica) == uuid then redis.call('HDEL', wanted_key, replica) end
  else
    redis.call('SREM', wanted_key, uuid)
  end
  redis.call('EXPIRE', pod_key, TOMBSTONE_SECONDS)
end

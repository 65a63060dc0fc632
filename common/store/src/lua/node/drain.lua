-- Returns payloads of a dead node to sq. Each moves only if it is still in `source`, so several schedulers
-- may drain a node at once. Invariants 2 and 4.
-- Reply: {'OK', number of payloads that were queued} | {'ALIVE'} (the node is alive again)
local node_key, sq, source, stop_set = head_keys()
-- `source` is cs, rq or pq of the node; its type is 'set' or 'list'. The incarnation is '' for a node that
-- has none.
local node, seen_incarnation, source_type = head_args()
local state, incarnation = unpack(redis.call('HMGET', node_key, 'state', 'incarnation'), 1, 2)
redis.call('LLEN', sq)
redis.call(source_type == 'set' and 'SCARD' or 'LLEN', source)
redis.call('SCARD', stop_set)
if state ~= 'dead' or (incarnation or '') ~= seen_incarnation then return { 'ALIVE' } end
for p = 1, pod_count do
  local pod_key, wanted_key = pod_keys(p)
  redis.call('HLEN', pod_key)
  check_wanted_type(wanted_key)
end

local queued, rescheduled = 0, batch_event('PodRescheduled', 'pending')
local message = 'its node ' .. node .. ' was declared dead'
for p = 1, pod_count do
  local pod_key, wanted_key, ep_key = pod_keys(p)
  -- '' if the payload or the record is unreadable.
  local payload, uuid = pod_args(p)
  local removed
  if source_type == 'set' then
    removed = redis.call('SREM', source, payload)
  else
    removed = redis.call('LREM', source, -1, payload)
  end
  -- Read here: the same uuid may occur twice in one call.
  local phase, holder, name = unpack(redis.call('HMGET', pod_key, 'phase', 'node', 'name'), 1, 3)
  if removed == 0 then
  elseif uuid == '' or not phase then
    redis.call('LPUSH', sq, payload)
    queued = queued + 1
  elseif holder == node and (phase == 'assigned' or phase == 'running') then
    return_to_pending(pod_key, 'NodeDied', message)
    release(node_key, pod_key)
    redis.call('RPUSH', sq, payload)
    add(rescheduled, uuid, name, node, message)
    endpoint(ep_key, pod_key, uuid)
    queued = queued + 1
  elseif holder == node and phase == 'stopping' then
    -- This also clears a stop request made after the declaration, which the worker's next session would get
    -- with every heartbeat.
    end_stopped(node_key, stop_set, pod_key, wanted_key, uuid)
    endpoint(ep_key, pod_key, uuid)
    emit('pod', uuid, 'PodStopped', name, node, 'stopped', message .. ' while stopping it')
  end
end
emit_batch(rescheduled)
publish_endpoints()
return { 'OK', queued }

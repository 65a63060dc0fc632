-- Acknowledges pods that run on a worker: from rq to cs, with record and event. Invariants 2 and 3.
-- Reply: {'FENCED'} | {'OK', then for each pod 'ok' | 'stop' (no longer wanted: stop it)
--        | 'stale' (not this worker's: remove the container)
--        | 'broken' (its record is none that kubeleet writes: nothing is recorded, the container runs on)}
local node_key, rq, cs, stop_set = head_keys()
local _, node, incarnation = head_args()
local records = {}
-- Usually the oldest entries of rq, which one LTRIM removes. It raises WRONGTYPE, so it is read first.
local oldest = redis.call('LRANGE', rq, -math.max(1, pod_count), -1)
redis.call('SCARD', cs)
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local record = read_record(pod_key, 'reason')
  records[p] = record
  if record and record[1] == 'stopping' then redis.call('SCARD', stop_set) end
end

local services = {}
for s = 1, service_count do
  local ep_key = service_keys(s)
  local name = service_args(s)
  services[tostring(s)] = { ep_key = ep_key, name = name }
end
local replies, acked, started = { 'OK' }, {}, batch_event('PodStarted', 'running')
local message = 'started on ' .. node
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  -- `starting`: what readiness waits for, or ''.
  local payload, assignment, address, published, starting, service_index = pod_args(p)
  local phase, holder, current_assignment, reason = unpack(records[p] or {}, 1, 4)
  if not records[p] then
    replies[p + 1] = 'broken'
  elseif holder ~= node or current_assignment ~= assignment then
    replies[p + 1] = 'stale'
  elseif phase == 'running' then
    replies[p + 1] = 'ok'
  elseif phase == 'assigned' or phase == 'stopping' then
    acked[#acked + 1] = payload
    if phase == 'assigned' then
      -- An empty address costs less than a look for a former one.
      redis.call('HSET', pod_key, 'phase', 'running', 'since', STAMP, 'attempts', '0', 'address', address)
      -- `published` names its assignment, so ports of an earlier container do not count.
      if published ~= '' then redis.call('HSET', pod_key, 'published', published) end
      if starting ~= '' then
        redis.call('HSET', pod_key, 'reason', 'Starting', 'message', starting)
      elseif (reason or '') ~= '' then
        redis.call('HSET', pod_key, 'reason', '', 'message', '')
      end
      local uuid, service = uuid_of(pod_key), services[service_index]
      endpoint(service.ep_key, pod_key, uuid)
      add(started, uuid, service.name, node, message)
      replies[p + 1] = 'ok'
    else
      redis.call('SADD', stop_set, uuid_of(pod_key))
      replies[p + 1] = 'stop'
    end
  else
    replies[p + 1] = 'stale'
  end
end

local function are_the_oldest(payloads)
  if #oldest < #payloads then return false end
  local missing = {}
  for _, payload in ipairs(payloads) do missing[payload] = (missing[payload] or 0) + 1 end
  for o = #oldest - #payloads + 1, #oldest do
    local payload = oldest[o]
    if (missing[payload] or 0) == 0 then return false end
    missing[payload] = missing[payload] - 1
  end
  return true
end
-- After a failover a payload may be in no queue, and reconcile would put it back.
local function remove_from_rq(payloads)
  if #payloads > 1 and are_the_oldest(payloads) then
    redis.call('LTRIM', rq, 0, -#payloads - 1)
  else
    for _, payload in ipairs(payloads) do redis.call('LREM', rq, -1, payload) end
  end
end
if #acked > 0 then
  remove_from_rq(acked)
  redis.call('SADD', cs, unpack(acked))
end
emit_batch(started)
publish_endpoints()
return replies

-- A worker runs what it claimed: from rq to cs, record and event, in one step. Invariants 2 and 3.
-- KEYS: events, meta, node:<n>, rq:<n>, cs:<n>, stop:<n>, then pod:<uuid> for each
-- ARGV: node, incarnation, then (payload, uuid, assignment, address, name) for each
-- Reply: {'FENCED'} | {'OK', then for each 'ok' | 'stop' (not wanted any more: stop it) | 'stale' (not its own: remove the container)}
local name, incarnation = ARGV[1], ARGV[2]
local FIELDS = 5
local count = #KEYS - 6
local pods = {}
redis.call('LLEN', KEYS[4])
redis.call('SCARD', KEYS[5])
if is_fenced(KEYS[3], incarnation) then return { 'FENCED' } end
for p = 1, count do
  pods[p] = redis.call('HMGET', KEYS[6 + p], 'phase', 'node', 'assignment', 'reason', 'address')
  if pods[p][1] == 'stopping' then redis.call('SCARD', KEYS[6]) end
end

local replies, run, started = { 'OK' }, {}, story('PodStarted', 'running')
for p = 1, count do
  local at = 2 + (p - 1) * FIELDS
  local payload, uuid, assignment, address, pod_name = unpack(ARGV, at + 1, at + FIELDS)
  local phase, node, held, reason, known_address = unpack(pods[p], 1, 5)
  if node ~= name or held ~= assignment then
    replies[p + 1] = 'stale'
  elseif phase == 'running' then
    replies[p + 1] = 'ok'
  elseif phase == 'assigned' or phase == 'stopping' then
    run[#run + 1] = payload
    if phase == 'assigned' then
      redis.call('HSET', KEYS[6 + p], 'phase', 'running', 'since', STAMP, 'attempts', '0')
      if address ~= (known_address or '') then redis.call('HSET', KEYS[6 + p], 'address', address) end
      if (reason or '') ~= '' then redis.call('HSET', KEYS[6 + p], 'reason', '', 'message', '') end
      tell(started, uuid, pod_name, name, 'runs on ' .. name)
      replies[p + 1] = 'ok'
    else
      redis.call('SADD', KEYS[6], uuid)
      replies[p + 1] = 'stop'
    end
  else
    replies[p + 1] = 'stale'
  end
end
-- Out of rq where they are there; after a failover they may be in neither place, and reconcile would put them back.
-- Usually they are just the oldest there, in some order: then they are cut off in one piece.
local function are_the_oldest(payloads)
  local missing = {}
  for _, payload in ipairs(payloads) do missing[payload] = (missing[payload] or 0) + 1 end
  local oldest = redis.call('LRANGE', KEYS[4], -#payloads, -1)
  for _, payload in ipairs(oldest) do
    if (missing[payload] or 0) == 0 then return false end
    missing[payload] = missing[payload] - 1
  end
  return #oldest == #payloads
end
local function take_out(payloads)
  if #payloads > 1 and are_the_oldest(payloads) then
    redis.call('LTRIM', KEYS[4], 0, -#payloads - 1)
  else
    for _, payload in ipairs(payloads) do redis.call('LREM', KEYS[4], -1, payload) end
  end
end
if #run > 0 then
  take_out(run)
  redis.call('SADD', KEYS[5], unpack(run))
end
emit_story(started)
return replies

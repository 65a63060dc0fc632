-- A worker says how a pod of its own is doing, without moving it.
-- KEYS: events, meta, node:<n>, pod:<uuid>
-- ARGV: node, incarnation, uuid, assignment, reason or '' when well, message, restarts or '', exit code or ''
-- Reply: 'OK' | 'FENCED' | 'STALE'
local name, incarnation, uuid, assignment, reason, message, restarts, exit_code = unpack(ARGV)
if is_fenced(KEYS[3], incarnation) then return 'FENCED' end
local pod = redis.call('HMGET', KEYS[4], 'phase', 'node', 'assignment', 'name', 'reason', 'restarts')
if pod[2] ~= name or pod[3] ~= assignment or (pod[1] ~= 'assigned' and pod[1] ~= 'running') then return 'STALE' end
redis.call('HSET', KEYS[4], 'reason', reason, 'message', message)
if restarts ~= '' then redis.call('HSET', KEYS[4], 'restarts', restarts) end
if exit_code ~= '' then redis.call('HSET', KEYS[4], 'exit_code', exit_code) end
if reason ~= '' and (reason ~= pod[5] or (restarts ~= '' and restarts ~= pod[6])) then
  emit('pod', uuid, reason, pod[4], name, pod[1], message)
elseif reason == '' and pod[5] and pod[5] ~= '' then
  emit('pod', uuid, 'PodRecovered', pod[4], name, pod[1], 'well again after ' .. pod[5])
end
return 'OK'

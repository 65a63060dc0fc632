-- Moves a payload that can not be a pod to the dead letters, byte for byte, if it is still where it was. Invariant 7.
-- KEYS: events, meta, rq:<node> or fq:<scheduler>, dq, node:<node> (any name for a scheduler), pod:<uuid> (any name when unreadable)
-- ARGV: queue it came through, payload, the dead letter up to `"at":`, reason, uuid or '', node or '', incarnation or ''
-- Reply: 'OK' | 'GONE' | 'FENCED'
local queue, payload, letter, reason, uuid, node, incarnation = unpack(ARGV)
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
if node ~= '' and is_fenced(KEYS[5], incarnation) then return 'FENCED' end
local pod = uuid ~= '' and redis.call('HMGET', KEYS[6], 'phase', 'node', 'cpu', 'memory', 'name') or {}

if redis.call('LREM', KEYS[3], -1, payload) == 0 then return 'GONE' end
redis.call('LPUSH', KEYS[4], letter .. string.format('%.0f', NOW) .. '}')
local phase, holder = pod[1], pod[2] or ''
if (phase == 'assigned' and holder == node) or phase == 'pending' then
  redis.call('HSET', KEYS[6], 'phase', 'failed', 'since', STAMP, 'reason', 'DeadLettered', 'message', reason)
  if phase == 'assigned' then release(KEYS[5], pod[3], pod[4]) end
  emit('pod', uuid, 'DeadLettered', pod[5], node, 'failed', reason)
else
  emit('queue', queue, 'DeadLettered', '', node, '', reason)
end
return 'OK'

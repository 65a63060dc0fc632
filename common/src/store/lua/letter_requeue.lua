-- Gives a dead letter another try: its payload goes back to the queue it came through; to sq when its pod is known.
-- KEYS: events, meta, dq, the queue it came through, sq, pod:<uuid> (any name when unreadable)
-- ARGV: the dead letter, payload, uuid or ''
-- Reply: 'OK' | 'GONE'
redis.call('LLEN', KEYS[4])
redis.call('LLEN', KEYS[5])
local pod = ARGV[3] ~= '' and redis.call('HMGET', KEYS[6], 'phase', 'reason') or {}
if redis.call('LREM', KEYS[3], 1, ARGV[1]) == 0 then return 'GONE' end
local target = KEYS[4]
if pod[1] == 'failed' and pod[2] == 'DeadLettered' then
  redis.call('HSET', KEYS[6], 'phase', 'pending', 'since', STAMP, 'attempts', 0, 'reason', '', 'message', '')
  redis.call('HDEL', KEYS[6], 'node', 'assignment')
  target = KEYS[5]
end
redis.call('LPUSH', target, ARGV[2])
emit('queue', target, 'LetterRequeued', '', '', '', 'a dead letter was queued again')
return 'OK'

-- Requeues the payload of a dead letter: to the queue it came through, or to sq if its pod is known.
-- Reply: 'OK' | 'GONE'
local dq, source_queue, sq, pod_key = head_keys()
-- The uuid is '' when the payload is unreadable.
local dead_letter, payload, uuid = head_args()
redis.call('LLEN', source_queue)
redis.call('LLEN', sq)
local phase, reason
if uuid ~= '' then phase, reason = unpack(redis.call('HMGET', pod_key, 'phase', 'reason'), 1, 2) end
if redis.call('LREM', dq, 1, dead_letter) == 0 then return 'GONE' end
local target = source_queue
if phase == 'failed' and reason == 'DeadLettered' then
  return_to_pending(pod_key, '', '')
  target = sq
end
redis.call('LPUSH', target, payload)
emit('queue', target, 'DeadLetterRequeued', '', '', '', 'a dead letter was queued again')
return 'OK'

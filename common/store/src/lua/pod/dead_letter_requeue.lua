-- Requeues the payload of a dead letter, or an edited one: to its former queue, or to sq if its pod is known
-- or the queue's node is gone. Refused calls leave the dead letter.
-- Reply: 'OK' | 'GONE'
--   'ENDED'       the pod has ended: a worker would drop the payload
--   'EXISTS'      an edited payload names another pod that has not ended
--   'IN_SERVICE'  the pod belongs to a service, from which its payload is built: an edited one cannot last
local dq, source_queue, sq, pod_key, nodes, pushed = head_keys()
-- The uuid is '' for an unreadable payload, the node is '' for sq. The fields after `is_edited` count if it
-- is '1'.
local dead_letter, payload, uuid, node, is_edited, name, image, replica = head_args()
redis.call('LLEN', source_queue)
redis.call('LLEN', sq)
redis.call('SCARD', pushed)
local is_taken_from = node == '' or redis.call('SISMEMBER', nodes, node) == 1
local phase, reason, service
if uuid ~= '' then
  phase, reason, service = unpack(redis.call('HMGET', pod_key, 'phase', 'reason', 'service'), 1, 3)
end
if not redis.call('LPOS', dq, dead_letter) then return 'GONE' end
local is_dead = phase == 'failed' and reason == 'DeadLettered'
if not is_dead and (phase == 'stopped' or phase == 'succeeded' or phase == 'failed') then return 'ENDED' end
if is_edited == '1' and phase and service then return 'IN_SERVICE' end
if is_edited == '1' and phase and not is_dead then return 'EXISTS' end

redis.call('LREM', dq, 1, dead_letter)
local target = is_taken_from and source_queue or sq
if is_dead then
  -- A pushed pod that ended a day ago was forgotten, and its record expires.
  redis.call('PERSIST', pod_key)
  if not service then redis.call('SADD', pushed, uuid) end
  return_to_pending(pod_key, '', '')
  if is_edited == '1' then
    redis.call('HSET', pod_key, 'payload', payload, 'name', name, 'image', image, 'replica', replica)
    redis.call('HDEL', pod_key, 'ports')
    set_resources(pod_key, head_resources())
  end
  target = sq
end
redis.call('LPUSH', target, payload)
emit('queue', target, 'DeadLetterRequeued', '', '', '',
  is_edited == '1' and 'a dead letter was edited and queued again' or 'a dead letter was queued again')
return 'OK'

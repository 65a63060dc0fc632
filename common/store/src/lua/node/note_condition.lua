-- Records the begin or end of a condition that several processes see, in one event.
-- Reply: 'OK' | 'SAME' (it was told before) | 'GONE' (there is no such node)
-- The holder is `meta`, or the record of a node.
local holder_key = head_keys()
-- The condition is 'mass_loss', 'write_outage', 'violations_held' or 'proxy_gone'; `is_on` is '1' at its
-- begin. A write outage is told after its end; `since` is its begin. Of held violations `is_on` is the
-- reason.
local condition, is_on, since, object, message = head_args()
local before = redis.call('HGET', holder_key, condition) or ''
if condition == 'write_outage' then
  if (past(before) or 0) >= tonumber(since) then return 'SAME' end
  redis.call('HSET', holder_key, condition, STAMP)
  emit('cluster', object, 'WritesResumed', '', '', '', message)
  return 'OK'
end
if before == is_on then return 'SAME' end
if condition == 'violations_held' then
  set_or_delete(holder_key, condition, is_on)
  if before == '' then emit('cluster', object, 'ViolationsHeld', '', '', '', message) end
  return 'OK'
end
if condition == 'proxy_gone' and redis.call('HEXISTS', holder_key, 'state') == 0 then return 'GONE' end
if is_on == '1' then redis.call('HSET', holder_key, condition, is_on) else redis.call('HDEL', holder_key, condition) end
if condition == 'proxy_gone' and is_on == '1' then
  emit('node', object, 'ProxyGone', object, object, '', message)
elseif condition == 'proxy_gone' then
  emit('node', object, 'ProxyBack', object, object, '', message)
elseif is_on == '1' then
  emit('cluster', object, 'MassLoss', '', '', '', message)
else
  emit('cluster', object, 'MassLossEnded', '', '', '', message)
end
return 'OK'

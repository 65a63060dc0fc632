-- Notes how far the rollout of a generation of a service is.
-- Reply: 'OK' | 'SAME' (it was so before) | 'CHANGED' (the service has another generation, or is gone)
local service_key = head_keys()
-- The mark is 'paused', 'resumed', 'canary', 'promoted' or 'settled'. The text says why it is paused, or how
-- far it is.
local service, generation, mark, text = head_args()
local state, fingerprint, paused, settled, canary, promoted = unpack(
  redis.call('HMGET', service_key, 'state', 'fingerprint', 'paused', 'settled', 'canary', 'promoted'), 1, 6)
local current = versions_of(service_key)
if state ~= 'active' or current ~= tonumber(generation) then return 'CHANGED' end
-- What was noted about an earlier generation is not about this one.
local is_paused = paused and string.match(paused, '^%d+') == generation
local about = 'generation ' .. generation
if mark == 'paused' then
  if is_paused then return 'SAME' end
  redis.call('HSET', service_key, 'paused', generation .. ' ' .. text)
  emit('service', service, 'RolloutPaused', service, '', '', about .. ': ' .. text)
elseif mark == 'resumed' then
  if not is_paused then return 'SAME' end
  redis.call('HSET', service_key, 'resumed', generation)
  redis.call('HDEL', service_key, 'paused')
  emit('service', service, 'RolloutResumed', service, '', '', about .. ': its pods are replaced further')
elseif mark == 'canary' then
  local is_known = canary and string.match(canary, '^%d+') == generation
  if is_known or promoted == generation then return 'SAME' end
  redis.call('HSET', service_key, 'canary', generation .. ' ' .. text)
  emit('service', service, 'RolloutAtCanary', service, '', '', about .. ': ' .. text)
elseif mark == 'promoted' then
  if promoted == generation then return 'SAME' end
  redis.call('HSET', service_key, 'promoted', generation)
  redis.call('HDEL', service_key, 'canary')
  emit('service', service, 'RolloutPromoted', service, '', '', about .. ': the other pods are replaced, too')
else
  local value = generation .. ' ' .. (string.match(fingerprint or '', ' (%x+)$') or '')
  if settled == value then return 'SAME' end
  redis.call('HSET', service_key, 'settled', value)
  emit('service', service, 'RolloutCompleted', service, '', '', about .. ': all pods are ready')
end
redis.call('PUBLISH', 'wake:reconcile', service)
return 'OK'

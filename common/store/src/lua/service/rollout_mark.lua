-- Notes the progress of a generation's rollout.
-- Reply: 'OK' | 'SAME' (it was so before) | 'CHANGED' (the service has another generation, or is gone)
local service_key = head_keys()
-- The mark is 'paused', 'paused_by_hand', 'held', 'resumed', 'canary', 'promoted' or 'settled'. The text says
-- why or how far; '' with 'settled' means that the generation was no rollout.
local service, generation, mark, text = head_args()
local state, fingerprint, paused, settled, canary, promoted, by_hand, held = unpack(
  redis.call('HMGET', service_key, 'state', 'fingerprint', 'paused', 'settled', 'canary', 'promoted',
    'paused_by_hand', 'held'), 1, 8)
local current = versions_of(service_key)
if state ~= 'active' or current ~= tonumber(generation) then return 'CHANGED' end
local is_paused = paused and string.match(paused, '^%d+') == generation
local about, is_step = 'generation ' .. generation, true
if mark == 'paused' then
  if is_paused then return 'SAME' end
  redis.call('HSET', service_key, 'paused', generation .. ' ' .. text)
  emit('service', service, 'RolloutPaused', service, '', '', about .. ': ' .. text)
elseif mark == 'paused_by_hand' then
  if by_hand == '1' then return 'SAME' end
  redis.call('HSET', service_key, 'paused_by_hand', '1')
  -- The version before reads only this field.
  if not is_paused then redis.call('HSET', service_key, 'paused', generation .. ' ' .. text) end
  emit('service', service, 'RolloutPaused', service, '', '', about .. ': ' .. text)
elseif mark == 'held' then
  if (held or '') == (text == '' and '' or generation .. ' ' .. text) then return 'SAME' end
  local was_held = held and string.match(held, '^%d+') == generation
  if text == '' then
    redis.call('HDEL', service_key, 'held')
  else
    redis.call('HSET', service_key, 'held', generation .. ' ' .. text)
    -- The words may vary; one event is enough.
    if not was_held then emit('service', service, 'RolloutHeld', service, '', '', about .. ': ' .. text) end
  end
  is_step = false
elseif mark == 'resumed' then
  if not is_paused and by_hand ~= '1' then return 'SAME' end
  -- A rollout paused only by a person is judged further; one found bad goes on in spite of it.
  local was_judged = is_paused and paused ~= generation .. ' paused by hand'
  if was_judged then redis.call('HSET', service_key, 'resumed', generation) end
  redis.call('HDEL', service_key, 'paused', 'paused_by_hand')
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
  redis.call('HDEL', service_key, 'held')
  if text ~= '' then
    emit('service', service, 'RolloutCompleted', service, '', '', about .. ': all pods are ready')
  end
end
if is_step then redis.call('PUBLISH', 'wake:reconcile', service) end
return 'OK'

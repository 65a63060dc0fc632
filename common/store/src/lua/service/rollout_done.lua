-- Forgets the rollout of a secret or config, unless the value has changed again.
-- Reply: 'OK' | 'CHANGED'
local rollouts = head_keys()
local value, seen = head_args()
local current = redis.call('HGET', rollouts, value)
if current and current ~= seen then return 'CHANGED' end
redis.call('HDEL', rollouts, value)
return 'OK'

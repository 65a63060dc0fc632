-- Frees slots whose pod has no record any more (lost in a failover, or deleted by hand), so that it can be made anew.
-- A slot that has another holder by now, or whose pod has a record after all, is left alone.
-- KEYS: events, meta, slots:<service>, then pod:<uuid> for each
-- ARGV: service, then (replica, uuid) for each
-- Reply: how many were freed
local service = ARGV[1]
redis.call('HLEN', KEYS[3])
local freed = 0
for i = 4, #KEYS do
  local at = 2 + (i - 4) * 2
  local replica, uuid = ARGV[at], ARGV[at + 1]
  if redis.call('HGET', KEYS[3], replica) == uuid and redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('HDEL', KEYS[3], replica)
    emit('pod', uuid, 'PodLost', service, '', '', 'its record is gone; replica ' .. replica .. ' is made anew')
    freed = freed + 1
  end
end
return freed

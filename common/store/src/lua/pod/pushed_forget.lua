-- Forgets pushed pods that ended some time ago or have no record, and pods of services, which another program
-- listed. Records stay as tombstones for a while.
-- Reply: number of pods that were forgotten
local pushed = head_keys()
local retention_ms = head_args()
retention_ms = tonumber(retention_ms)
redis.call('SCARD', pushed)
local records = {}
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  records[p] = redis.call('HMGET', pod_key, 'phase', 'since', 'service')
end
local forgotten = 0
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  local phase, since, service = unpack(records[p], 1, 3)
  local has_ended = phase == 'succeeded' or phase == 'failed'
  -- A time in the future, of a former master, counts as now.
  if not phase or service or (has_ended and NOW - (tonumber(since) or 0) >= retention_ms) then
    forgotten = forgotten + redis.call('SREM', pushed, uuid)
    if phase and not service then redis.call('EXPIRE', pod_key, TOMBSTONE_SECONDS) end
  end
end
return forgotten

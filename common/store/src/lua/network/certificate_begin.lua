-- Notes that the holder of the lease orders a certificate for a host.
-- Reply: {'OK', orders since the last that succeeded} | {'LEASE'} (the caller does not hold it any more)
-- If the caller dies after this, the next holder orders again: the first time at once, later with growing
-- waits.
local certificate_key, lease_key = head_keys()
-- `attempt` is random: late results of an earlier attempt change nothing.
local host, caller, attempt = head_args()
local current, attempts, not_after = unpack(
  redis.call('HMGET', certificate_key, 'attempt', 'attempts', 'not_after'), 1, 3)
local holder = redis.call('GET', lease_key)
attempts = tonumber(attempts) or 0

-- The reply to this very call was lost.
if current == attempt then return { 'OK', attempts } end
if holder ~= caller then return { 'LEASE' } end

redis.call('HSET', certificate_key, 'attempt', attempt, 'attempts', attempts + 1, 'begun_at', STAMP)
redis.call('HDEL', certificate_key, 'token', 'authorization')
expire_certificate(certificate_key, not_after)
return { 'OK', attempts + 1 }

-- Notes why an order failed, and how long the next one waits.
-- Reply: 'OK' | 'STALE' (it has ended, or another process has begun one)
local certificate_key = head_keys()
local host, attempt, failure, wait_ms = head_args()
local current, not_after = unpack(redis.call('HMGET', certificate_key, 'attempt', 'not_after'), 1, 2)
if current ~= attempt then return 'STALE' end
redis.call('HSET', certificate_key, 'error', failure, 'failed_at', STAMP, 'wait_ms', wait_ms)
redis.call('HDEL', certificate_key, 'attempt', 'begun_at', 'token', 'authorization')
expire_certificate(certificate_key, not_after)
emit('cluster', 'certificate/' .. host, 'CertificateFailed', '', '', '', failure)
redis.call('PUBLISH', 'wake:certificates', host)
return 'OK'

-- Stores the answer of all proxies to the authority that checks a host.
-- Reply: 'OK' | 'STALE' (another process has begun an order for the host)
local certificate_key = head_keys()
local host, attempt, token, authorization = head_args()
local current, current_token, current_authorization = unpack(
  redis.call('HMGET', certificate_key, 'attempt', 'token', 'authorization'), 1, 3)
if current ~= attempt then return 'STALE' end
if current_token == token and current_authorization == authorization then return 'OK' end
redis.call('HSET', certificate_key, 'token', token, 'authorization', authorization)
return 'OK'

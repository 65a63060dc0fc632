-- Reads what a worker has taken and not acknowledged.
-- Reply: the payloads in rq, newest first. Giants become dead letters.
local rq, dq, pq = head_keys()
redis.call('LLEN', dq)
return without_giants(rq, dq, pq, redis.call('LRANGE', rq, 0, -1))

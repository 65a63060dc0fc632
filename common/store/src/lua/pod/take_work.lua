-- Moves payloads of a worker from pq to rq, oldest first: BRPOPLPUSH for several.
-- Reply: the payloads that were moved, oldest first. Giants become dead letters.
local pq, rq, dq = head_keys()
local max_count = head_args()
redis.call('LLEN', pq)
redis.call('LLEN', rq)
redis.call('LLEN', dq)
local moved = redis.call('RPOP', pq, max_count)
if not moved then return {} end
redis.call('LPUSH', rq, unpack(moved))
return without_giants(rq, dq, pq, moved)

-- Moves more payloads of a worker from pq to rq, oldest first: what BRPOPLPUSH does, for several at once.
-- KEYS: events, meta, pq:<n>, rq:<n>
-- ARGV: how many at most
-- Reply: those that were moved, oldest first
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
local moved = redis.call('RPOP', KEYS[3], ARGV[1])
if not moved then return {} end
redis.call('LPUSH', KEYS[4], unpack(moved))
return moved

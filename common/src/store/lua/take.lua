-- Moves waiting pods into a scheduler's hands, oldest first, and shows that the scheduler lives.
-- KEYS: events, meta, sq, fq:<scheduler>, schedulers
-- ARGV: scheduler, how many at most
-- Reply: all payloads now in its hands (those it already had included), oldest first
local in_hand = redis.call('LLEN', KEYS[4])
redis.call('LLEN', KEYS[3])
redis.call('ZADD', KEYS[5], NOW, ARGV[1])
for _ = in_hand + 1, tonumber(ARGV[2]) do
  if not redis.call('LMOVE', KEYS[3], KEYS[4], 'RIGHT', 'LEFT') then break end
end
local all = redis.call('LRANGE', KEYS[4], 0, -1)
local oldest_first = {}
for i = #all, 1, -1 do oldest_first[#oldest_first + 1] = all[i] end
return oldest_first

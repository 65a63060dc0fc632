-- Takes or keeps the right to be the one that does something. It saves work; nothing depends on it for correctness.
-- KEYS: events, meta, lease:<name>
-- ARGV: holder, for how long ms
-- Reply: 1 held | 0 somebody else has it
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
return 1

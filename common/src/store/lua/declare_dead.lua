-- Declares a silent node dead, if it still is: from here on its worker can change nothing. Invariants 3 and 4.
-- KEYS: events, meta, node:<n>, beats, stop:<n>
-- ARGV: node, incarnation seen or '', dead_after ms, pause after a change of master ms, least time between two deaths ms
-- Reply: {'DECLARED'} | {'ALIVE'} (it beat again, or is another life) | {'ALREADY'} | {'WAIT', ms}
local name, seen, dead_after, pause, gap = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local node = redis.call('HMGET', KEYS[3], 'incarnation', 'state', 'beat')
redis.call('ZCARD', KEYS[4])
redis.call('SCARD', KEYS[5])
local last = tonumber(redis.call('HGET', META, 'last_death_at')) or 0
if node[2] == 'dead' then return { 'ALREADY' } end
local silent = NOW - (tonumber(node[3]) or NOW)
if node[2] ~= 'alive' or (node[1] or '') ~= seen or silent <= dead_after then return { 'ALIVE' } end
local left = math.max(pause_left(pause), last + gap - NOW)
if left > 0 then return { 'WAIT', left } end

redis.call('HSET', KEYS[3], 'state', 'dead', 'dead_at', STAMP)
redis.call('HSET', META, 'last_death_at', STAMP)
redis.call('ZREM', KEYS[4], name)
redis.call('DEL', KEYS[5])
emit('node', name, 'NodeDead', name, name, '', 'silent for ' .. math.floor(silent / 1000) .. ' s: its pods move')
return { 'DECLARED' }

-- Returns what a silent scheduler had in its hands to the queue, oldest first out again. Whoever comes second finds
-- nothing. The scheduler itself is forgotten an hour later: it may only be paused, about to take one more.
-- KEYS: events, meta, sq, fq:<scheduler>, schedulers
-- ARGV: scheduler, silent for how long ms, how many at most
-- Reply: {'ALIVE'} | {'OK', how many were returned}
redis.call('LLEN', KEYS[3])
local in_hand = redis.call('LLEN', KEYS[4])
local beat = tonumber(redis.call('ZSCORE', KEYS[5], ARGV[1]) or 0)
if NOW - beat <= tonumber(ARGV[2]) then return { 'ALIVE' } end
local moved = 0
while moved < tonumber(ARGV[3]) and redis.call('LMOVE', KEYS[4], KEYS[3], 'LEFT', 'RIGHT') do moved = moved + 1 end
if moved > 0 then
  emit('cluster', 'scheduler', 'OrphansReturned', '', '', '', moved .. ' pods in the hands of a silent scheduler are queued again')
elseif in_hand == 0 and NOW - beat > 3600000 then
  redis.call('ZREM', KEYS[5], ARGV[1])
end
return { 'OK', moved }

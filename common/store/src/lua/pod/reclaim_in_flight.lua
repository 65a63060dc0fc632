-- Returns the in-flight payloads of a silent scheduler to sq. It is forgotten an hour later, as it may only
-- be paused and about to take a pod; one that has ended a minute later, as a pop may still be on its way to
-- Redis.
-- Reply: {'ALIVE'} | {'OK', number of payloads that were returned}
local FORGET_AFTER_MS, FORGET_ENDED_AFTER_MS = 3600000, 60000
local sq, in_flight, schedulers = head_keys()
local scheduler, silent_ms, max_count, has_ended = head_args()
redis.call('LLEN', sq)
local length = redis.call('LLEN', in_flight)
local beat = tonumber(redis.call('ZSCORE', schedulers, scheduler) or 0)
if is_no_past(beat) then
  redis.call('ZADD', schedulers, NOW, scheduler)
  return { 'ALIVE' }
end
if NOW - beat <= tonumber(silent_ms) then return { 'ALIVE' } end
-- After a change of the master the clock may have jumped: silence counts from then at most.
local silence = NOW - math.max(beat, master_changed_at())
if silence <= tonumber(silent_ms) then return { 'ALIVE' } end
local moved = 0
while moved < tonumber(max_count) and redis.call('LMOVE', in_flight, sq, 'LEFT', 'RIGHT') do
  moved = moved + 1
end
if moved > 0 then
  emit('cluster', 'scheduler', 'InFlightReclaimed', '', '', '',
    moved .. ' pods in flight in the silent scheduler ' .. scheduler .. ' are queued again')
elseif length == 0 and has_ended == '1' then
  redis.call('ZADD', schedulers, 'XX', NOW - FORGET_AFTER_MS + FORGET_ENDED_AFTER_MS, scheduler)
elseif length == 0 and silence > FORGET_AFTER_MS then
  redis.call('ZREM', schedulers, scheduler)
end
return { 'OK', moved }

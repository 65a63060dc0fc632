-- Declares a node dead if it is still silent: its worker can change nothing from now on. Invariants 3, 4, 16
-- and 18.
-- Reply: {'DECLARED'} | {'ALREADY'} | {'WAIT', ms}
--        | {'ALIVE'} (it sent a heartbeat, has another incarnation, its last heartbeat was in the future and
--          counts from now on, or its silence is not proven for long enough)
local node_key, beats, stop_set = head_keys()
-- The incarnation is '' for a node that has none. Between two declarations `min_gap_ms` must pass. A worker
-- may be silent because Redis takes no writes: silence counts up to `proven_until`, the caller's last write,
-- and at most `writable_ms` (it could write) and `calm_ms` (its breaker was closed).
local node, seen_incarnation, dead_after_ms, pause_ms, min_gap_ms, proven_until, writable_ms, calm_ms = head_args()
local incarnation, state, beat, times =
  unpack(redis.call('HMGET', node_key, 'incarnation', 'state', 'beat', 'times'), 1, 4)
local listed = redis.call('ZSCORE', beats, node)
redis.call('SCARD', stop_set)
local last_death = tonumber(read_meta('last_death_at')[1]) or 0
if state == 'dead' then return { 'ALREADY' } end
if state == 'alive' and (incarnation or '') == seen_incarnation
  and (is_no_past(beat) or (listed and is_no_past(listed))) then
  redis.call('HSET', node_key, 'beat', STAMP)
  redis.call('ZADD', beats, NOW, node)
  return { 'ALIVE' }
end
local last_beat = past(beat) or NOW
local silent_ms = NOW - last_beat
local proven_ms = math.min(silent_ms, proven_until - last_beat, tonumber(writable_ms), tonumber(calm_ms))
local own_fence_ms, own_dead_after_ms = registered_times(times, incarnation)
local required_ms = math.max(tonumber(dead_after_ms), own_dead_after_ms or 0)
if state ~= 'alive' or (incarnation or '') ~= seen_incarnation or proven_ms <= required_ms then
  return { 'ALIVE' }
end
if last_death > NOW then
  last_death = NOW
  redis.call('HSET', META, 'last_death_at', STAMP)
end
local pause = math.max(tonumber(pause_ms), own_fence_ms or 0)
local left = math.max(pause_left(pause), last_death + tonumber(min_gap_ms) - NOW)
if left > 0 then return { 'WAIT', left } end

redis.call('HSET', node_key, 'state', 'dead', 'dead_at', STAMP)
redis.call('HSET', META, 'last_death_at', STAMP)
redis.call('ZREM', beats, node)
redis.call('DEL', stop_set)
emit('node', node, 'NodeDead', node, node, '',
  'no heartbeat for ' .. math.floor(silent_ms / 1000) .. ' s: its pods are moved to other nodes')
redis.call('PUBLISH', 'wake:reconcile', 'node ' .. node)
return { 'DECLARED' }

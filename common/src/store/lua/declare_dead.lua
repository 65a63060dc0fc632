-- Declares a silent node dead, if it still is silent: from now on its worker can change nothing. Invariants 3
-- and 4.
-- Reply: {'DECLARED'} | {'ALREADY'} | {'WAIT', ms}
--        | {'ALIVE'} (it sent a heartbeat, has another incarnation, or its last heartbeat was in the future
--          and counts from now on)
local node_key, beats, stop_set = head_keys()
-- The incarnation is '' for a node that has none. Between two declarations at least `min_gap_ms` must pass.
local node, seen_incarnation, dead_after_ms, pause_ms, min_gap_ms = head_args()
local incarnation, state, beat = unpack(redis.call('HMGET', node_key, 'incarnation', 'state', 'beat'), 1, 3)
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
local silent_ms = NOW - (past(beat) or NOW)
if state ~= 'alive' or (incarnation or '') ~= seen_incarnation or silent_ms <= tonumber(dead_after_ms) then
  return { 'ALIVE' }
end
if last_death > NOW then
  last_death = NOW
  redis.call('HSET', META, 'last_death_at', STAMP)
end
local left = math.max(pause_left(tonumber(pause_ms)), last_death + tonumber(min_gap_ms) - NOW)
if left > 0 then return { 'WAIT', left } end

redis.call('HSET', node_key, 'state', 'dead', 'dead_at', STAMP)
redis.call('HSET', META, 'last_death_at', STAMP)
redis.call('ZREM', beats, node)
redis.call('DEL', stop_set)
emit('node', node, 'NodeDead', node, node, '',
  'no heartbeat for ' .. math.floor(silent_ms / 1000) .. ' s: its pods are moved to other nodes')
return { 'DECLARED' }

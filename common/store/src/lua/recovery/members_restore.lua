-- Adds live nodes that the list of nodes or the heartbeats lack, and removes heartbeats without a record.
-- Reply: number of nodes that were listed again
local nodes, beats = head_keys()
redis.call('SCARD', nodes)
redis.call('ZCARD', beats)
local records = {}
for n = 1, node_count do
  local node_key = node_keys(n)
  records[n] = redis.call('HMGET', node_key, 'state', 'beat')
end
local restored = 0
for n = 1, node_count do
  local node = node_args(n)
  local state, beat = unpack(records[n], 1, 2)
  if state == 'alive' then
    local added = redis.call('SADD', nodes, node)
      + redis.call('ZADD', beats, 'NX', math.min(tonumber(beat) or 0, NOW), node)
    if added > 0 then restored = restored + 1 end
  elseif not state then
    redis.call('ZREM', beats, node)
  end
end
return restored

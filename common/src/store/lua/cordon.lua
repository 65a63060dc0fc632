-- Says whether new pods may be placed on a node.
-- KEYS: events, meta, node:<n>
-- ARGV: node, 1 | 0
-- Reply: 'OK' | 'MISSING'
local state = redis.call('HMGET', KEYS[3], 'state', 'cordoned')
if not state[1] then return 'MISSING' end
if (state[2] or '0') ~= ARGV[2] then
  redis.call('HSET', KEYS[3], 'cordoned', ARGV[2])
  local on = ARGV[2] == '1'
  emit('node', ARGV[1], on and 'NodeCordoned' or 'NodeUncordoned', ARGV[1], ARGV[1], '',
    on and 'nothing new is placed here' or 'pods may be placed here again')
  redis.call('PUBLISH', 'wake:scheduler', 'capacity')
end
return 'OK'

-- Records that containers of a former name of a node run on its machine.
-- Reply: 'OK' | 'MISSING' (the node has no record yet: it registers first)
local node_key = head_keys()
local node, former, containers = head_args()
local state, known = unpack(redis.call('HMGET', node_key, 'state', 'former'), 1, 2)
if not state then return 'MISSING' end
local found = containers .. ' ' .. former
if known == found then return 'OK' end
redis.call('HSET', node_key, 'former', found)
emit('node', node, 'FormerName', node, node, '', containers .. ' containers of the node name ' .. former
  .. ' run on this machine, and its worker has no lease: was this node renamed? They go on, and their pods move to other'
  .. ' nodes. Start a worker with that name again, or remove them on the engine: they have the label kubeleet.node='
  .. former)
return 'OK'

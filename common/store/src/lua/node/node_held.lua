-- Records of which pods a node leaves containers alone because Redis has no record of them: schedulers start
-- no other pod in their slots.
-- Reply: {'FENCED'} | {'OK'}
--   A worker that dies before it reads the reply reports again; the same report changes nothing.
local node_key = head_keys()
-- `pods` has a line "<service> <replica> <uuid>" for each; '' for none.
local node, incarnation, pods = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
if (redis.call('HGET', node_key, 'held_pods') or '') == pods then return { 'OK' } end
if pods == '' then redis.call('HDEL', node_key, 'held_pods') else redis.call('HSET', node_key, 'held_pods', pods) end
-- An empty hint: the slots of all services.
redis.call('PUBLISH', 'wake:reconcile', '')
return { 'OK' }

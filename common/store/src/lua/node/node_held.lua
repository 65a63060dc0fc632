-- Records the pods without a record whose containers a node leaves alone: schedulers start no others in their
-- slots.
-- Reply: {'FENCED'} | {'OK'}
--   A worker that dies before it reads the reply reports again; the same report changes nothing.
local node_key = head_keys()
-- A line "<service> <replica> <uuid>" for each; '' for none.
local node, incarnation, pods = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
if (redis.call('HGET', node_key, 'held_pods') or '') == pods then return { 'OK' } end
set_or_delete(node_key, 'held_pods', pods)
-- The empty hint means all services.
redis.call('PUBLISH', 'wake:reconcile', '')
return { 'OK' }

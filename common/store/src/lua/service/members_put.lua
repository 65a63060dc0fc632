-- Stores the nodes of a global service, each with the number of its pod.
-- Reply: 'OK' | 'CHANGED' (it has other members, is being deleted, or is gone: read it again)
local service_key = head_keys()
-- The members are a JSON object; `slots` is one more than their highest number. `mark` is unique: what a
-- scheduler has decided by other members is refused. The message is '' if no pod comes or goes.
local service, seen_members, members, slots, mark, message = head_args()
local state, kind, current = unpack(redis.call('HMGET', service_key, 'state', 'kind', 'members'), 1, 3)
if state ~= 'active' or kind ~= 'global' or (current or '') ~= seen_members then return 'CHANGED' end
redis.call('HSET', service_key, 'members', members, 'replicas', slots, 'placed', mark)
if message ~= '' then
  emit('service', service, 'NodesChanged', service, '', '', message)
  wake_schedulers()
end
return 'OK'

-- Stores which pods of a service move to which nodes.
-- Reply: 'OK' | 'CHANGED' (it has other moves, is being deleted, or is gone: read it again)
local service_key = head_keys()
-- The moves are a JSON object, '' for none. The message is '' if none begins.
local service, seen_moves, moves, message = head_args()
local state, current = unpack(redis.call('HMGET', service_key, 'state', 'moves'), 1, 2)
if state ~= 'active' or (current or '') ~= seen_moves then return 'CHANGED' end
set_or_delete(service_key, 'moves', moves)
if message ~= '' then
  emit('service', service, 'PodsMoving', service, '', '', message)
  redis.call('PUBLISH', 'wake:reconcile', service)
end
return 'OK'

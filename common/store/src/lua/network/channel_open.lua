-- Leaves a request to connect with the worker of a pod, and records the event. Both sides keep the record of
-- the channel from expiring.
-- Reply: 'OK' | 'GONE' (there is no such pod, or it is not on this node)
--        | 'BUSY' (the worker does not take its requests)
local pod_key, node_key, requests, record = head_keys()
local uuid, node, request, word, message, is_quiet, expire_seconds, max_requests = head_args()
local name, on_node = unpack(redis.call('HMGET', pod_key, 'name', 'node'), 1, 2)
local state = redis.call('HGET', node_key, 'state')
local waiting = redis.call('LLEN', requests)
local known = redis.call('HEXISTS', record, 'word')
if on_node ~= node or not state then return 'GONE' end
if known == 1 then return 'OK' end
if waiting >= tonumber(max_requests) then return 'BUSY' end
redis.call('HSET', record, 'word', word, 'name', name or '', 'node', node, 'is_quiet', is_quiet)
redis.call('EXPIRE', record, expire_seconds)
redis.call('RPUSH', requests, request)
redis.call('EXPIRE', requests, expire_seconds)
if is_quiet == '0' then
  emit('pod', uuid, word .. 'Started', name, node, '', message)
end
redis.call('PUBLISH', 'wake:' .. node, 'requests')
return 'OK'

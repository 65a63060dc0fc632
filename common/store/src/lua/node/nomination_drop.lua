-- Gives up the room on a node that is kept for a pod which does not wait for it any more.
-- Reply: 'OK' | 'CHANGED' (none is kept for this pod)
local node_key = head_keys()
local nominee = head_args()
local kept = redis.call('HGET', node_key, 'nominated')
if not kept or string.sub(kept, 1, #nominee + 1) ~= nominee .. ' ' then return 'CHANGED' end
redis.call('HDEL', node_key, 'nominated')
wake_schedulers()
return 'OK'

-- Stores the labels that an operator gave a node; the schedulers read it again.
-- Reply: 'OK' | 'MISSING' | 'CHANGED' (the labels are not those that the caller has seen: read them again)
local node_key = head_keys()
local node, seen_labels, seen_own_labels, own_labels, message = head_args()
local state, labels, current, revision =
  unpack(redis.call('HMGET', node_key, 'state', 'labels', 'own_labels', 'labels_revision'), 1, 4)
if not state then return 'MISSING' end
if (labels or '') ~= seen_labels or (current or '') ~= seen_own_labels then return 'CHANGED' end
redis.call('HSET', node_key, 'own_labels', own_labels, 'labels_revision', (tonumber(revision) or 0) + 1)
emit('node', node, 'NodeRelabelled', node, node, '', 'an operator changed its labels: ' .. message)
wake_schedulers()
redis.call('PUBLISH', 'wake:reconcile', 'node ' .. node)
return 'OK'

-- Records whether the disk of a node is full; then it gets no new pods.
-- Reply: {'FENCED'} | {'OK'}
--   A worker that dies before it reads the reply reports again; the same report changes nothing.
local node_key = head_keys()
local node, incarnation, problem = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
local before = redis.call('HGET', node_key, 'disk_problem') or ''
if problem == before then return { 'OK' } end
redis.call('HSET', node_key, 'disk_problem', problem)
-- The numbers in the sentence change; the event is about the condition.
if problem ~= '' and before == '' then emit('node', node, 'DiskPressure', node, node, '', problem) end
if problem == '' then
  emit('node', node, 'DiskPressureEnded', node, node, '', 'the disk has room again; pods are placed here')
  wake_schedulers()
end
return { 'OK' }

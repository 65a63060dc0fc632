-- Records the directory of a node for shared volumes. The cluster has one: the first reported, or the one
-- that a worker knows from before Redis was lost.
-- Reply: {'FENCED'} | {'OK', id of the cluster's directory or ''}
-- '' asks the worker to give its directory an id and to report again. A worker that dies before it reads the
-- reply reports again; the same report changes nothing.
local node_key = head_keys()
-- `found` is the id in the directory, `known` the id that the worker was told last, `problem` why the
-- directory cannot be used; each may be ''.
local node, incarnation, found, known, problem = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
local recorded = read_meta('shared_directory')[1]
local before = redis.call('HGET', node_key, 'shared_volumes')
if not recorded then
  if known ~= '' then recorded = known
  elseif problem == '' and found ~= '' then recorded = found end
  if recorded then redis.call('HSET', META, 'shared_directory', recorded) end
end
if problem == '' and found == '' then
  if not recorded then return { 'OK', '' } end
  problem = 'its shared directory has no file that identifies it, but the cluster has one with the id ' .. recorded
    .. ': mount the file system that the other nodes have, or copy everything from there'
elseif problem == '' and found ~= recorded then
  problem = 'its shared directory has the id ' .. found .. ', but that of the cluster is ' .. recorded
    .. ': mount the file system that the other nodes have'
end
local state = problem == '' and 'ready' or problem
if state ~= before then
  redis.call('HSET', node_key, 'shared_volumes', state)
  local reason = state == 'ready' and 'SharedVolumesReady' or 'SharedVolumesRefused'
  emit('node', node, reason, node, node, '', state == 'ready'
    and 'pods with shared volumes can run here' or 'no pod with shared volumes is placed here: ' .. problem)
  if state == 'ready' then wake_schedulers() end
end
return { 'OK', recorded or '' }

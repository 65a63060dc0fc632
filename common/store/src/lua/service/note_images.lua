-- Records the images that a worker is about to start a pod with. The first pod of a specification pins them
-- for the others.
-- Reply: {'FENCED'} | {'STALE'} (it is not to be started here any more) | {'OK', what is pinned}
local node_key, pod_key, service_key = head_keys()
-- `images` and the pinned ones have lines "<image> <digest or -> <id>". `differs` is '', or says how they
-- differ.
local node, incarnation, uuid, assignment, spec, images, differs = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
local phase, holder, current_assignment, name, noted = unpack(
  redis.call('HMGET', pod_key, 'phase', 'node', 'assignment', 'name', 'images'), 1, 5)
if phase ~= 'assigned' or holder ~= node or current_assignment ~= assignment then return { 'STALE' } end
local field, pinned = 'images:' .. spec, images
if spec ~= '' and redis.call('HEXISTS', service_key, 'state') == 1 then
  if redis.call('HSETNX', service_key, field, images) == 0 then
    pinned = redis.call('HGET', service_key, field)
  end
end
-- It names the assignment: images of an earlier one do not count.
local value = assignment .. '\n' .. images
redis.call('HSET', pod_key, 'images', value)
if differs ~= '' and noted ~= value then
  emit('pod', uuid, 'ImageDiffers', name, node, phase, differs)
end
return { 'OK', pinned }

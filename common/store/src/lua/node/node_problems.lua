-- Records problems of a node that keep no pods from running, for people.
-- Reply: {'FENCED'} | {'OK'}
--   A worker that dies before it reads the reply reports again; the same report changes nothing.
local node_key = head_keys()
-- `problems` are sentences, one a line, or ''.
local node, incarnation, problems = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
local before = redis.call('HGET', node_key, 'problems') or ''
if problems == before then return { 'OK' } end
redis.call('HSET', node_key, 'problems', problems)
local known = {}
for line in string.gmatch(before, '[^\n]+') do known[line] = true end
for line in string.gmatch(problems, '[^\n]+') do
  if not known[line] then emit('node', node, 'NodeProblem', node, node, '', line) end
end
if problems == '' then
  emit('node', node, 'NodeProblemsEnded', node, node, '', 'nothing is wrong with this node any more')
end
return { 'OK' }

-- Lists the classes of unschedulable pods in their order.
-- Reply: for each class {class, number of its pods, and of the oldest one: time ms, payload, refusals}
local uq, uq_why, uq_class, uq_by_class = head_keys()
-- '' begins at the first class.
local after, max_count = head_args()
redis.call('HLEN', uq)
redis.call('HLEN', uq_why)
check_class_types(uq_class, uq_by_class)
local from = after == '' and '-' or '(' .. after .. '!'
local found = {}
for c = 1, max_count do
  local class, uuid, since = first_of_class(uq, uq_class, uq_by_class, from, '+')
  if not class then break end
  local first, last = class_range(class)
  found[c] = { class, redis.call('ZLEXCOUNT', uq_by_class, first, last), since, redis.call('HGET', uq, uuid),
    redis.call('HGET', uq_why, uuid) or '' }
  from = last
end
return found

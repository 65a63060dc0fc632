-- Returns unschedulable pods to sq: of each given class its oldest ones, or without classes the pods that are
-- due. Of a class only the oldest pod is ever due, and the next one a minute later: it is decided about
-- whatever a look at the nodes has said.
-- Reply: {number of pods that were queued, `freed` of `meta`}
local MAX_WAIT_MS = 60000
local sq, uq, uq_at, uq_why, uq_class, uq_by_class = head_keys()
-- Of the pods that are due.
local max_count = head_args()
redis.call('LLEN', sq)
redis.call('HLEN', uq)
redis.call('ZCARD', uq_at)
redis.call('HLEN', uq_why)
check_class_types(uq_class, uq_by_class)

local queued = 0
local function queue(uuid)
  local payload = redis.call('HGET', uq, uuid)
  forget_unschedulable(uq, uq_at, uq_why, uq_class, uq_by_class, uuid)
  if payload then
    redis.call('LPUSH', sq, payload)
    queued = queued + 1
  end
end
local function first_of(class)
  local _, uuid = first_of_class(uq, uq_class, uq_by_class, class_range(class))
  return uuid
end
local function wait_again(uuid)
  redis.call('ZADD', uq_at, 'XX', NOW + MAX_WAIT_MS, uuid)
end

for c = 1, class_count do
  local class, count = class_args(c)
  for _ = 1, count do
    local uuid = first_of(class)
    if not uuid then break end
    queue(uuid)
  end
end
if class_count == 0 then
  local due = redis.call('ZRANGEBYSCORE', uq_at, '-inf', NOW, 'LIMIT', 0, max_count)
  -- No wait is longer than MAX_WAIT_MS: a later time is of a former master whose clock was ahead. Those pods
  -- must not wait until no other is due.
  local left = tonumber(max_count) - #due
  local future = redis.call('ZRANGEBYSCORE', uq_at, NOW + 2 * MAX_WAIT_MS, '+inf', 'LIMIT', 0, left)
  for _, uuid in ipairs(future) do due[#due + 1] = uuid end
  local has_gone = {}
  for _, uuid in ipairs(due) do
    local class = string.match(redis.call('HGET', uq_class, uuid) or '', '^%S+')
    local first = class and not has_gone[class] and first_of(class)
    if class and (has_gone[class] or (first and first ~= uuid)) then
      wait_again(uuid)
    else
      queue(uuid)
      local next_one = class and first_of(class)
      if next_one then wait_again(next_one) end
      if class then has_gone[class] = true end
    end
  end
end
return { queued, tonumber(read_meta('freed')[1]) or 0 }

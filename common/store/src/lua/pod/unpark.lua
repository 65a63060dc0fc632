-- Returns unschedulable pods to sq: of each given class its oldest ones, or without classes the pods that are
-- due. Of a class only the oldest pod is ever due, and the next one a minute later: it is decided about
-- whatever a look at the nodes has said.
-- Reply: {number of pods that were queued, `freed` of `meta`}
local MAX_WAIT_MS = 60000
local sq, uq, uq_at, uq_why, uq_class, uq_by_class = head_keys()
-- `max_count` limits the pods that are due.
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
    local entry = redis.call('HGET', uq_class, uuid)
    local is_listed = entry and redis.call('ZSCORE', uq_by_class, entry .. ' ' .. uuid)
    local class = is_listed and match_short(entry, '^%S+')
    if not class then
      queue(uuid)
    elseif has_gone[class] or first_of(class) ~= uuid then
      wait_again(uuid)
    else
      has_gone[class] = true
      queue(uuid)
      local next_one = first_of(class)
      if next_one then wait_again(next_one) end
    end
  end
end
return { queued, tonumber(read_meta('freed')[1]) or 0 }

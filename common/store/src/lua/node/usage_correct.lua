-- Corrects usage that differs from the records, unless it changed since the caller read it: `reservations`
-- counts reservations, and a release changes the sums. `port` is a host port or an id of a named resource,
-- with its value as seen and as it must be; '' is none.
-- Reply: 'OK' | 'CHANGED' (read again)
local node_key = head_keys()
local node, incarnation, seen_reservations, seen_pods, seen_used, pods = head_args()
-- An amount for each of RESOURCES, divided by spaces.
local seen = {}
for amount in string.gmatch(seen_used, '%S+') do seen[#seen + 1] = amount end
local actual = head_resources()
if is_fenced(node_key, incarnation) then return 'CHANGED' end
-- Callers read a missing or empty field as 0.
local function is_as_seen(field, seen_amount)
  local amount = redis.call('HGET', node_key, field)
  return (not amount or amount == '') and seen_amount == '0' or amount == seen_amount
end
if not is_as_seen('reservations', seen_reservations) or not is_as_seen('used_pods', seen_pods) then
  return 'CHANGED'
end
local differences = {}
local function compare(field, seen_amount, amount)
  if seen_amount ~= amount then
    differences[#differences + 1] = field .. ' ' .. seen_amount .. ' -> ' .. amount
  end
end
compare('used_pods', seen_pods, pods)
for r = 1, RESOURCE_COUNT do
  local field = 'used_' .. RESOURCES[r]
  if not is_as_seen(field, seen[r]) then return 'CHANGED' end
  compare(field, seen[r], actual[r])
end
for p = 1, port_count do
  local field, seen_holder = port_args(p)
  if (redis.call('HGET', node_key, field) or '') ~= seen_holder then return 'CHANGED' end
end
for p = 1, port_count do
  local field, seen_holder, holder = port_args(p)
  if holder ~= '' then
    redis.call('HSET', node_key, field, holder)
  else
    redis.call('HDEL', node_key, field)
  end
  -- A port of another program is tried again after a while; that is no difference.
  if seen_holder ~= '- another program' then differences[#differences + 1] = field end
end
if #differences == 0 then
  if port_count > 0 then wake_schedulers() end
  return 'OK'
end
redis.call('HSET', node_key, 'used_pods', pods)
for r = 1, RESOURCE_COUNT do redis.call('HSET', node_key, 'used_' .. RESOURCES[r], actual[r]) end
emit('node', node, 'UsageCorrected', node, node, '',
  'what its pods use differed from their records: ' .. table.concat(differences, ', '))
wake_schedulers()
return 'OK'

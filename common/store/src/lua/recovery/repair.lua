-- Repairs one finding of `kubeleet cluster check`, unless its subject has changed.
-- Reply: 'OK' | 'CHANGED' (check again)
local key, aside, record_key = head_keys()
-- The actions are:
--   'move_aside'     rename a key that has the type `element`
--   'set_aside'      the same, done by kubeleet itself
--   'move_broken'    rename a record (a hash) that has this phase
--   'remove_fields'  remove fields, one in each line of `element`, of a record that has this phase
--   'remove_slot'    remove the field `element`, which has the value `seen_phase`
--   'expire'         let the key expire
--   'restore_spec'   write the specification `element`, which has the text `seen_phase` ('': none), again
--                    from the record of a service that names it
--   'add'            add `element` to a set, if the record exists
--   'add_route'      write the route `element` again, which has the value `seen_phase`, if the service has it
--   'remove_route'   remove it, unless the service has it
--   'add_relation'   add the service `seen_phase` to the owners in the field `element`, if its record has
--                    that relation
--   'remove_relation'  remove it from them, unless it has
--   'remove'         remove the entry `element`, if the record has this phase and node (both '': no record)
local action, element, seen_phase, seen_node = head_args()
local ASIDE_SECONDS = 7 * 24 * 3600
local key_type = redis.call('TYPE', key).ok
redis.call('TYPE', aside)

local function record_is_as_seen()
  if seen_phase == '' and seen_node == '' then return redis.call('EXISTS', record_key) == 0 end
  local phase, node = unpack(redis.call('HMGET', record_key, 'phase', 'node'), 1, 2)
  return (phase or '') == seen_phase and (node or '') == seen_node
end
local function remove()
  if not record_is_as_seen() then return false end
  if key_type == 'set' then return redis.call('SREM', key, element) == 1 end
  if key_type == 'hash' then
    -- A slot: the element is its replica, the record that of its pod.
    local uuid = redis.call('HGET', key, element)
    return uuid and 'pod:' .. uuid == record_key and redis.call('HDEL', key, element) == 1
  end
  -- Only a second copy is removed from a list.
  return key_type == 'list' and #redis.call('LPOS', key, element, 'COUNT', 2) == 2
    and redis.call('LREM', key, 1, element) == 1
end

local function move_aside()
  redis.call('RENAME', key, aside)
  -- Until its names are listed again: the caller may die before.
  if key == 'services' then redis.pcall('HSET', META, 'unlisted_services', STAMP) end
  return redis.call('EXPIRE', aside, ASIDE_SECONDS) == 1
end
local function is_record_as_seen()
  return key_type == 'hash' and (redis.call('HGET', key, 'phase') or '') == seen_phase
end
local function remove_fields()
  local removed = 0
  for field in string.gmatch(element, '[^\n]+') do removed = removed + redis.call('HDEL', key, field) end
  return removed > 0
end

local function restore_spec()
  local spec, text = unpack(redis.call('HMGET', record_key, 'spec', 'spec_text'), 1, 2)
  if spec ~= element or not text then return false end
  local is_as_seen = key_type == 'none' and seen_phase == ''
    or key_type == 'string' and redis.call('GET', key) == seen_phase
  -- SET also removes an expiry.
  return is_as_seen and redis.call('SET', key, text).ok == 'OK'
end

local function has_route()
  local lines = '\n' .. (redis.call('HGET', record_key, 'routes') or '') .. '\n'
  return string.find(lines, '\n' .. element .. ' ' .. seen_phase .. '\n', 1, true) ~= nil
end

local function has_relation()
  local related = ' ' .. (redis.call('HGET', record_key, 'related') or '') .. ' '
  return string.find(related, ' ' .. element .. ' ', 1, true) ~= nil
end
local function write_relation(before, after)
  local owners = redis.call('HGET', key, element)
  write_relations(key, seen_phase, before, after)
  return redis.call('HGET', key, element) ~= owners
end

local done = false
if action == 'remove' then
  done = remove()
elseif action == 'expire' then
  done = key_type == 'string' and redis.call('TTL', key) == -1
    and redis.call('EXPIRE', key, TOMBSTONE_SECONDS) == 1
elseif action == 'move_aside' or action == 'set_aside' then
  done = key_type == element and move_aside()
elseif action == 'move_broken' then
  done = is_record_as_seen() and move_aside()
elseif action == 'remove_fields' then
  done = is_record_as_seen() and remove_fields()
elseif action == 'remove_slot' then
  done = key_type == 'hash' and redis.call('HGET', key, element) == seen_phase
    and redis.call('HDEL', key, element) == 1
elseif action == 'add_route' then
  done = (key_type == 'hash' or key_type == 'none') and has_route()
    and redis.call('HSETNX', key, element, seen_phase) == 1
elseif action == 'remove_route' then
  done = key_type == 'hash' and redis.call('HGET', key, element) == seen_phase and not has_route()
    and redis.call('HDEL', key, element) == 1
elseif action == 'add_relation' then
  done = (key_type == 'hash' or key_type == 'none') and has_relation() and write_relation('', element)
elseif action == 'remove_relation' then
  done = key_type == 'hash' and not has_relation() and write_relation(element, '')
elseif action == 'restore_spec' then
  done = restore_spec()
elseif action == 'add' then
  done = (key_type == 'set' or key_type == 'none') and redis.call('EXISTS', record_key) == 1
    and redis.call('SADD', key, element) == 1
end
if not done then return 'CHANGED' end
if action == 'add_route' or action == 'remove_route' then redis.call('PUBLISH', 'wake:routes', '') end
emit('cluster', key, 'Repaired', '', '', '', action == 'set_aside'
  and 'another program wrote a ' .. element .. ' there: moved to ' .. aside .. ', which expires in a week'
  or action == 'add' and string.sub(element, 1, 100) .. ' was missing there: added again'
  or 'repaired by an operator: ' .. string.gsub(action, '_', ' '))
return 'OK'

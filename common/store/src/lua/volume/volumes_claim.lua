-- Decides, before containers are created, whether a pod may have its persistent volumes. Nothing new takes
-- the place of existing data.
-- Reply: {'FENCED'} | {'OK', then for each volume two elements: verdict, detail}. The verdicts are:
--   'use'         the engine has it; the detail is its epoch if no pod is known to have had it
--   'create'      it was never here: create it, with the detail as its epoch
--   'lost'        it was here, and the engine does not have it any more
--   'conflict'    several nodes, which the detail names, have a copy, and an operator has to choose
--   'unreported'  where it is is not known yet
--   'former'      a copy is here that was given up: it must not become the volume
--   'elsewhere'   it is on another node, which the detail names
--   'removing'    it is being removed
-- The same call again gets the same verdict.
local node_key, volumes, reports, copies, given_up, problems = head_keys()
local node, incarnation, settle_after_ms = head_args()
if is_fenced(node_key, incarnation) then return { 'FENCED' } end
redis.call('SCARD', volumes)
redis.call('SCARD', problems)
redis.call('ZCARD', given_up)
local engine_id = redis.call('HGET', node_key, 'engine_id') or ''
local records, copies_of = {}, read_copies(copies)
for v = 1, volume_count do
  local volume_key = volume_keys(v)
  records[v] = redis.call('HMGET', volume_key, 'node', 'state', 'restored', 'engine_id', 'epoch', 'found',
    'conflict', 'lost')
end
local is_everything_known = #unreported_nodes(reports) == 0 and pause_left(tonumber(settle_after_ms)) == 0

-- There is no record, or one of a backup. The next reports of the nodes with copies settle it.
local function of_uncertain(v, record)
  local volume_key = volume_keys(v)
  local name, service, source, replica, space, is_present, epoch = volume_args(v)
  local holder, _, _, _, known_epoch = unpack(record, 1, 5)
  local candidates = candidate_copies(given_up, name, copies_of[name], holder, tonumber(known_epoch))
  if not is_everything_known or #candidates > 0 then return 'unreported', '' end
  if holder then return nil end
  if is_present == '1' then
    return is_given_up(given_up, name, tonumber(epoch)) and 'former' or 'unreported', ''
  end
  local new_epoch = next_epoch(given_up, name, copies_of[name])
  redis.call('HSET', volume_key, 'name', name, 'service', service, 'source', source, 'replica', replica,
    'node', node, 'engine_id', engine_id, 'space', space, 'state', 'bound', 'created_at', STAMP, 'epoch', new_epoch)
  redis.call('SADD', volumes, name)
  return 'create', new_epoch
end

local function verdict_on(v, record)
  local volume_key = volume_keys(v)
  local name, service, _, _, _, is_present, epoch = volume_args(v)
  local holder, state, restored, holding_engine, known_epoch, found, conflict, lost = unpack(record, 1, 8)
  if state == 'removing' then return 'removing', '' end
  if conflict then return 'conflict', conflict end
  if not holder or restored then
    local verdict, detail = of_uncertain(v, record)
    if verdict then return verdict, detail end
  end
  if holder ~= node then return 'elsewhere', holder end
  if (holding_engine or '') ~= '' and holding_engine ~= engine_id then return 'elsewhere', holder end
  local known, own = tonumber(known_epoch), tonumber(epoch)
  local is_older = known and own and own < known
  if is_present == '1' and not is_older then
    if found == '1' then return 'use', '' end
    redis.call('HSET', volume_key, 'found', 1)
    return 'use', epoch ~= '' and epoch or STAMP
  end
  if is_present ~= '1' and found ~= '1' then
    if not known then
      known_epoch = next_epoch(given_up, name, copies_of[name])
      redis.call('HSET', volume_key, 'epoch', known_epoch)
    end
    return 'create', known_epoch
  end
  if not lost then
    note_lost(problems, volume_key, name, service, node, is_older and node .. ' has an older copy of it'
      or 'the container engine of ' .. node .. ' does not have it any more')
  end
  return 'lost', is_older and 'older' or ''
end

local replies = { 'OK' }
for v = 1, volume_count do
  local verdict, detail = verdict_on(v, records[v])
  replies[2 * v], replies[2 * v + 1] = verdict, detail
end
return replies

-- Moves a payload that cannot be a pod to the dead letters, byte for byte. Invariant 7.
-- Reply: 'OK' | 'GONE' | 'FENCED' | 'KNOWN' (it has a record by now, as after a recovery: judge it again)
-- The source is rq of a worker or the in-flight list of a scheduler. Node and incarnation are '' for a
-- scheduler, the uuid is '' for an unreadable payload; their keys are then any names.
local source, dq, node_key, pod_key = head_keys()
-- `dead_letter` is its JSON up to the value of `at`, the last field.
-- `only_unknown` is '1' if the reason is that the pod has no record.
local queue, payload, dead_letter, reason, uuid, node, incarnation, only_unknown = head_args()
redis.call('LLEN', source)
redis.call('LLEN', dq)
if node ~= '' and is_fenced(node_key, incarnation) then return 'FENCED' end
local phase, holder, name
if uuid ~= '' then
  -- A broken record does not hold the payload up.
  local record = read_record(pod_key, 'name') or {}
  phase, holder, name = record[1], record[2], record[4]
end
if only_unknown == '1' and phase then return 'KNOWN' end

if redis.call('LREM', source, -1, payload) == 0 then return 'GONE' end
add_dead_letter(dq, dead_letter .. STAMP .. '}')
if (phase == 'assigned' and holder == node) or phase == 'pending' then
  redis.call('HSET', pod_key, 'phase', 'failed', 'since', STAMP, 'reason', 'DeadLettered', 'message', reason)
  if phase == 'assigned' then
    release(node_key, pod_key)
    wake_schedulers()
  end
  emit('pod', uuid, 'DeadLettered', name, node, 'failed', reason)
else
  emit('queue', queue, 'DeadLettered', '', node, '', reason)
end
return 'OK'

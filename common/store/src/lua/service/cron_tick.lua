-- Takes a tick of a cron and creates its job in one step. A repeated call finds the tick taken.
-- Reply: 'OK' | 'CHANGED' (the cron has changed, or another tick was taken: read it again)
--        | 'EXISTS' (there is a service with the name of the job; the tick is taken all the same)
local cron_key, job_key, services, spec_key, unconfirmed, former_specs, runs, done, tries, relations = head_keys()
-- `seen_write` and `seen_ticks` are as the caller read them; `ticks` are all taken ones with this one. A
-- manual run has tick 0 and leaves `ticks`. `skipped` is '', or why no job is created. `fields` are those of
-- the job, `related` what follows from them.
local cron, seen_write, seen_ticks, ticks, tick, skipped, missed, job, spec, spec_text, fingerprint, completions,
  fields, related, write = head_args()
local state, kind, current_write, current_ticks = unpack(
  redis.call('HMGET', cron_key, 'state', 'kind', 'write', 'ticks'), 1, 4)
local exists = redis.call('EXISTS', job_key) == 1
redis.call('SCARD', services)
redis.call('HLEN', unconfirmed)
redis.call('SCARD', former_specs)
redis.call('ZCARD', runs)
redis.call('HLEN', done)
redis.call('HLEN', tries)
if related ~= '' then redis.call('HLEN', relations) end
if state ~= 'active' or kind ~= 'cron' then return 'CHANGED' end
if (current_write or '') ~= seen_write or (current_ticks or '') ~= seen_ticks then return 'CHANGED' end
local by_hand = tick == '0'

-- The replicas confirm it before its first pod is created, see `pods_create`.
if skipped == '' and not exists then note_unconfirmed(unconfirmed, job, write) end
if not by_hand then redis.call('HSET', cron_key, 'ticks', ticks) end
if missed ~= '0' then
  emit('service', cron, 'CronMissed', cron, '', '', missed .. ' of its times were missed: no scheduler was there')
end
if skipped ~= '' then
  emit('service', cron, 'CronSkipped', cron, '', '', skipped)
  return 'OK'
end
if exists then
  if not by_hand then
    emit('service', cron, 'CronSkipped', cron, '', '', 'there is a service ' .. job .. ', so no job could have that name')
  end
  return 'EXISTS'
end
redis.call('SET', spec_key, spec_text)
reuse_spec(former_specs, spec, write)
-- A failover may have lost only the record of an earlier job of this name.
redis.call('DEL', done, tries)
redis.call('HSET', job_key, 'name', job, 'state', 'active', 'generation', 1, 'spec', spec, 'spec_text', spec_text,
  'fingerprint', spec .. ' ' .. fingerprint, 'replicas', completions, 'fields', fields, 'created_at', STAMP,
  'updated_at', STAMP, 'revision', 1, 'write', write, 'kind', 'job',
  'of_cron', cron .. ' ' .. tick)
redis.call('SADD', services, job)
if related ~= '' then
  redis.call('HSET', job_key, 'related', related)
  write_relations(relations, job, '', related)
end
redis.call('ZADD', runs, by_hand and math.floor(NOW / 1000) or tick, job)
emit('service', cron, 'CronRan', cron, '', '', 'created job ' .. job .. (by_hand and ', by hand' or ''))
redis.call('PUBLISH', 'wake:reconcile', job)
return 'OK'

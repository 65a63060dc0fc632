-- Records a scheduler's detection times, and the newest form of specifications that it reads. Success shows
-- that Redis takes writes: see `declare_dead`.
-- Reply: {the time, the id of the cluster or ''}
local scheduler_key, forms_key = head_keys()
local times, forms = head_args()
local cluster = read_meta('cluster')[1] or ''
redis.call('SET', scheduler_key, times)
redis.call('PEXPIRE', scheduler_key, 60000)
redis.call('SET', forms_key, forms)
redis.call('PEXPIRE', forms_key, 60000)
return { NOW, cluster }

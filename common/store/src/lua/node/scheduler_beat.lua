-- Records with which times a scheduler detects failures. That Redis carries it out shows the scheduler that
-- Redis takes writes: see `declare_dead`.
-- Reply: the time
local scheduler_key = head_keys()
local times = head_args()
redis.call('SET', scheduler_key, times)
redis.call('PEXPIRE', scheduler_key, 60000)
return NOW

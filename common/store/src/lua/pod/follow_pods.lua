-- Makes a part of `ep:<service>` from the records of pods. Scripts that change other pods meanwhile write
-- theirs themselves, so it is complete once each pod that was in a slot after `follow` was passed here.
-- Reply: 'OK' | 'AGAIN' (begin again with follow: it has expired, the master has changed, or another one has
--        made it)
local ep_key = head_keys()
-- `is_last` is '1' with the last pods.
local master, is_last = head_args()
local made_under, version = unpack(redis.call('HMGET', ep_key, 'm', 'v'), 1, 2)
if made_under ~= master or version then return 'AGAIN' end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  endpoint(ep_key, pod_key, uuid)
end
if is_last == '1' then
  -- Its time, so that no version occurs twice, whatever a failover has lost.
  redis.call('HSET', ep_key, 'v', STAMP)
  redis.call('HDEL', ep_key, 'making')
else
  redis.call('HSET', ep_key, 'making', STAMP)
end
publish_endpoints()
return 'OK'

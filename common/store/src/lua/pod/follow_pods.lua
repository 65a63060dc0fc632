-- Makes a part of `ep:<service>` from records. Other scripts add their pods meanwhile, so it is complete once
-- each pod that had a slot after `follow` was passed.
-- Reply: 'OK' | 'AGAIN' (begin again with follow: it has expired, the master has changed, or another one has
--        made it)
local ep_key = head_keys()
local master, is_last = head_args()
local made_under, version = unpack(redis.call('HMGET', ep_key, 'm', 'v'), 1, 2)
if made_under ~= master or version then return 'AGAIN' end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  endpoint(ep_key, pod_key, uuid)
end
if is_last == '1' then
  -- The time, so that no version occurs twice after a failover.
  redis.call('HSET', ep_key, 'v', STAMP)
  redis.call('HDEL', ep_key, 'making')
else
  redis.call('HSET', ep_key, 'making', STAMP)
end
publish_endpoints()
return 'OK'

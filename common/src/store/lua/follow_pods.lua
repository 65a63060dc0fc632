-- Makes a part of `ep:<service>` from the records of pods. Scripts that change other pods meanwhile write
-- theirs themselves, so it is complete once each pod that was in a slot after `follow` was passed here.
-- Reply: 'OK' | 'AGAIN' (begin again with follow: it has expired, or the master has changed)
local ep_key = head_keys()
-- `is_last` is '1' with the last pods.
local master, is_last = head_args()
if redis.call('HGET', ep_key, 'm') ~= master then return 'AGAIN' end
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local uuid = pod_args(p)
  endpoint(ep_key, pod_key, uuid)
end
-- Its time, so that no version occurs twice, whatever a failover has lost.
if is_last == '1' then redis.call('HSETNX', ep_key, 'v', STAMP) end
publish_endpoints()
return 'OK'

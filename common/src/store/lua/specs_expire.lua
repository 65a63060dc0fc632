-- Lets specifications expire that services have replaced and no pod names any more.
-- Reply: number of specifications
local former_specs = head_keys()
redis.call('SCARD', former_specs)
local expired = 0
for s = 1, spec_count do
  local spec_key = spec_keys(s)
  local spec = spec_args(s)
  -- The pods that named it may have ended just now: late copies of their payloads are read for a while.
  if redis.call('SREM', former_specs, spec) == 1 then
    redis.call('EXPIRE', spec_key, TOMBSTONE_SECONDS)
    expired = expired + 1
  end
end
return expired

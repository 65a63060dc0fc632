-- Sets an expiry on replaced specifications that no pod names.
-- Reply: number of specifications
local former_specs = head_keys()
-- The last write that reused a former specification. After another one pods may name what none named when
-- they were read.
local seen_reuse = head_args()
redis.call('SCARD', former_specs)
if (read_meta('spec_reused_by')[1] or '') ~= seen_reuse then return 0 end
local expired = 0
for s = 1, spec_count do
  local spec_key = spec_keys(s)
  local spec = spec_args(s)
  -- Late copies of payloads of ended pods are read for a while.
  if redis.call('SREM', former_specs, spec) == 1 then
    redis.call('EXPIRE', spec_key, TOMBSTONE_SECONDS)
    expired = expired + 1
  end
end
return expired

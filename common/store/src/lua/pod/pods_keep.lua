-- Gives pods with the current specification the current generation: it was replaced and stored again before
-- they were. Versions that compare only generations then leave them running.
-- Reply: number of pods
local service_key = head_keys()
local service = head_args()
local spec, generation = unpack(redis.call('HMGET', service_key, 'spec', 'generation'), 1, 2)
local current = tonumber(generation)
local outdated = {}
for p = 1, pod_count do
  local pod_key = pod_keys(p)
  local its_service, its_spec, its_generation =
    unpack(redis.call('HMGET', pod_key, 'service', 'spec', 'generation'), 1, 3)
  -- A pod that has changed meanwhile is left to the next look.
  local seen_generation = pod_args(p)
  local is_seen = (tonumber(its_generation) or 0) == tonumber(seen_generation)
  local has_spec = spec and its_service == service and its_spec == spec
  if is_seen and has_spec and current and tonumber(seen_generation) < current then
    outdated[#outdated + 1] = pod_key
  end
end
for _, pod_key in ipairs(outdated) do redis.call('HSET', pod_key, 'generation', generation, 'kept_at', STAMP) end
return #outdated

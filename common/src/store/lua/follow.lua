-- Returns the endpoints of a service, unless the caller knows them, and keeps `ep:<service>` for another
-- while.
-- Reply: {'SAME'} | {'SET', version, master, fields and values}
--        | {'MAKE', master} (it has to be made: list the slots, then call follow_pods with all their pods)
local ep_key = head_keys()
-- Version and master that the caller knows, '' for none.
local known_version, known_master = head_args()
local KEPT_SECONDS = 3600
local fields = redis.pcall('HMGET', ep_key, 'm', 'v')
if is_error(fields, 'WRONGTYPE') then
  set_aside(ep_key)
  fields = {}
end
local current = string.format('%.0f', master_changed_at())
local master, version = unpack(fields, 1, 2)
if master ~= current then
  redis.call('DEL', ep_key)
  redis.call('HSET', ep_key, 'm', current)
end
redis.call('EXPIRE', ep_key, KEPT_SECONDS)
if master ~= current or not version then return { 'MAKE', current } end
if known_version == version and known_master == master then return { 'SAME' } end
return { 'SET', version, master, redis.call('HGETALL', ep_key) }

-- Tells whether the caller knows the current endpoints of a service, and prolongs `ep:<service>`.
-- Reply: {'SAME'} | {'SET'} (they are others: read version and fields, in pages)
--        | {'MAKE', master} (the caller makes it: it lists the slots and calls follow_pods with their pods)
--        | {'WAIT'} (another one makes it: ask again)
local ep_key = head_keys()
local known_version, known_master = head_args()
local KEPT_SECONDS = 3600
-- After this silence of its maker the next one begins.
local MAKER_MS = 5000
local fields = redis.pcall('HMGET', ep_key, 'm', 'v', 'making', 's')
if is_error(fields, 'WRONGTYPE') then
  set_aside(ep_key)
  fields = {}
end
local current = string.format('%.0f', master_changed_at())
local master, version, making, own_key = unpack(fields, 1, 4)
-- Overwritten by hand it is none. A copy of another service's set has that one's key.
local is_of_now = master == current and (not version or string.find(version, '^%d+$'))
  and own_key == ep_key
local is_made = is_of_now and version
local is_being_made = is_of_now and not is_no_past(making) and NOW - making < MAKER_MS
if not is_of_now then
  -- DEL takes tens of milliseconds for 100,000 pods.
  redis.call('UNLINK', ep_key)
  redis.call('HSET', ep_key, 'm', current, 's', ep_key)
end
if not is_made and not is_being_made then redis.call('HSET', ep_key, 'making', STAMP) end
redis.call('EXPIRE', ep_key, KEPT_SECONDS)
if not is_made then return is_being_made and { 'WAIT' } or { 'MAKE', current } end
if known_version == version and known_master == master then return { 'SAME' } end
return { 'SET' }

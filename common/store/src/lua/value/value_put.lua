-- Stores the next version of a secret or config, and drops the oldest of more than `kept`.
-- Reply: {'OK'} | {'SAME'} (the current version is this very one) | {'CONFLICT', current version}
--        | {'FULL', number of values} | {'OTHER_APP', the app that it belongs to, or ''}
local value_key, names, rollouts = head_keys()
-- `kind` is 'Secret' or 'Config'; `value` is as stored, so a secret's is encrypted; `app` is the app that
-- must own the value, '' leaves the owner.
local kind, name, version, value, kept, max_count, app = head_args()
local current, current_value, owner = unpack(redis.call('HMGET', value_key, 'current', 'v:' .. version, 'app'), 1, 3)
local count = redis.call('SCARD', names)
redis.call('HLEN', rollouts)
-- A number written by hand ends no other version.
current = tonumber(current) or 0
version = tonumber(version)

if version == current and current_value == value then return { 'SAME' } end
if current > 0 and app ~= '' and owner ~= app then return { 'OTHER_APP', owner or '' } end
if version ~= current + 1 then return { 'CONFLICT', current } end
if current == 0 and count >= tonumber(max_count) then return { 'FULL', count } end

local field = string.format('%.0f', version)
redis.call('HSET', value_key, 'current', field, 'v:' .. field, value, 'updated_at', STAMP)
redis.call('HSETNX', value_key, 'created_at', STAMP)
if app ~= '' then redis.call('HSET', value_key, 'app', app) end
redis.call('HDEL', value_key, string.format('v:%.0f', version - tonumber(kept)))
redis.call('SADD', names, name)
-- A scheduler forgets it once the services that use it are being restarted.
if current > 0 then redis.call('HSET', rollouts, string.lower(kind) .. '/' .. name, field .. ' ' .. STAMP) end
emit('cluster', string.lower(kind) .. '/' .. name, kind .. (current == 0 and 'Created' or 'Rotated'), '', '', '',
  'version ' .. field .. ' was stored')
return { 'OK' }

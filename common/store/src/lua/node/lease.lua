-- Takes or renews a lease on work for one process. It only saves work; correctness never depends on it.
-- Reply: 1 held by the caller | 0 held by another
local lease_key = head_keys()
local caller, period_ms = head_args()
local holder = redis.pcall('GET', lease_key)
if is_error(holder, 'WRONGTYPE') then
  set_aside(lease_key)
  holder = false
end
local left = redis.call('PTTL', lease_key)
-- An expiry later than any holder asks for: a new master's clock is behind, or the key never expires.
if holder and holder ~= caller and left >= 0 and left <= tonumber(period_ms) then return 0 end
redis.call('SET', lease_key, caller, 'PX', period_ms)
return 1

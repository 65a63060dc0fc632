-- Gives up a lease, if it is the caller's.
-- Reply: 1 given up | 0 it is not the caller's, or was given up before
local lease_key = head_keys()
local caller = head_args()
if redis.call('GET', lease_key) ~= caller then return 0 end
redis.call('DEL', lease_key)
return 1

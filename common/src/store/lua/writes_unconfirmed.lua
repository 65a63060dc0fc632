-- Gives writes of services that the replicas have not confirmed yet, and makes a write after them. Replication is one
-- stream: whoever has that write has all of these, so one WAIT for it speaks of them all.
-- KEYS: events, meta, unconfirmed
-- ARGV: of what age, ms (who made a younger one may be waiting for the replicas himself), the most of them
-- Reply: {name, id, …}, picked at random where there are more; empty: there are none, and nothing was written
local least_age, most = tonumber(ARGV[1]), ARGV[2]
local noted = redis.call('HRANDFIELD', KEYS[3], most, 'WITHVALUES')
local found = {}
for i = 1, #noted, 2 do
  local id, at = string.match(noted[i + 1], '^(%S*) ?(%d*)')
  local age = NOW - (tonumber(at) or 0)
  -- Before a failover the clock may have been ahead of this one.
  if age >= least_age or age < 0 then
    found[#found + 1] = noted[i]
    found[#found + 1] = id
  end
end
if #found > 0 then redis.call('HSET', META, 'confirming_at', STAMP) end
return found

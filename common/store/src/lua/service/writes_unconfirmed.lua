-- Returns unconfirmed writes, and writes after them: replication is one stream, so one WAIT confirms them
-- all.
-- Reply: {service, write, …}, picked at random where there are more; if there are none, nothing was written
local unconfirmed = head_keys()
-- The writer of a younger write may still wait itself.
local min_age_ms, max_count = head_args()
local noted = redis.call('HRANDFIELD', unconfirmed, max_count, 'WITHVALUES')
local found = {}
for i = 1, #noted, 2 do
  local write, at = string.match(noted[i + 1], '^(%S*) ?(%d*)')
  local age = NOW - (tonumber(at) or 0)
  -- A negative age: the clock of a former master was ahead.
  if age >= tonumber(min_age_ms) or age < 0 then
    found[#found + 1] = noted[i]
    found[#found + 1] = write
  end
end
if #found > 0 then
  read_meta('confirming_at')
  redis.call('HSET', META, 'confirming_at', STAMP)
end
return found

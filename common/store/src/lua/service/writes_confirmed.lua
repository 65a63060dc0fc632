-- Records that the replicas have these writes, unless a newer write of the service waits.
-- Reply: number of writes that were waiting
local unconfirmed = head_keys()
-- `announce` is 'all', or 'owed' if the writer learns it from the reply: then only services with an earlier
-- unconfirmed write get an event.
local announce, message = head_args()
local confirmed = 0
for w = 1, write_count do
  local service, write = write_args(w)
  local note = redis.call('HGET', unconfirmed, service)
  if note and string.match(note, '^%S*') == write then
    redis.call('HDEL', unconfirmed, service)
    confirmed = confirmed + 1
    if announce == 'all' or string.match(note, ' 1$') then
      emit('service', service, 'WriteConfirmed', service, '', '', message)
    end
  end
end
return confirmed

-- Records that the replicas have these writes of services, except where a newer write of the service is
-- waiting by now.
-- Reply: number of writes that were waiting
local unconfirmed = head_keys()
-- `announce` is 'all', or 'owed' when the writer learns it from the reply: then only a service with an
-- earlier unconfirmed write gets an event.
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

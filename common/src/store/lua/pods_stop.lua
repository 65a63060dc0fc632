-- Says that pods are not wanted any more.
-- KEYS: events, meta, uq, uq:at, uq:why, slots:<service> or pushed, then (pod:<uuid>, stop:<node it was seen on>) for each
-- ARGV: reason, message, then (uuid, node it was seen on or '') for each
-- Reply: for each 'stopped' (gone at once) | 'stopping' (its node will stop it) | 'moved' (reread) | 'gone'
local reason, message = ARGV[1], ARGV[2]
local count = (#KEYS - 6) / 2
local pods = {}
redis.call('HLEN', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('HLEN', KEYS[5])
look_at_wanted(KEYS[6])
for i = 1, count do
  pods[i] = redis.call('HMGET', KEYS[5 + 2 * i], 'phase', 'node', 'service', 'replica', 'name')
  redis.call('SCARD', KEYS[6 + 2 * i])
end

local replies, stopped, stopping = {}, story('PodStopped', 'stopped'), story('PodStopping', 'stopping')
for i = 1, count do
  local pod_key, stop_key = KEYS[5 + 2 * i], KEYS[6 + 2 * i]
  local uuid, seen = ARGV[1 + 2 * i], ARGV[2 + 2 * i]
  local phase, node, service, replica, name = unpack(pods[i], 1, 5)
  if not phase or phase == 'stopped' then
    replies[i] = 'gone'
    if phase then bury(pod_key, KEYS[6], service, replica, uuid) end
  elseif phase == 'pending' or phase == 'succeeded' or phase == 'failed' then
    redis.call('HSET', pod_key, 'phase', 'stopped', 'since', STAMP, 'reason', reason, 'message', message)
    redis.call('HDEL', KEYS[3], uuid)
    redis.call('ZREM', KEYS[4], uuid)
    redis.call('HDEL', KEYS[5], uuid)
    bury(pod_key, KEYS[6], service, replica, uuid)
    tell(stopped, uuid, name, '', message)
    replies[i] = 'stopped'
  elseif node ~= seen then
    replies[i] = 'moved'
  else
    if phase ~= 'stopping' then
      redis.call('HSET', pod_key, 'phase', 'stopping', 'since', STAMP, 'reason', reason, 'message', message)
      tell(stopping, uuid, name, node, message)
    end
    if redis.call('SADD', stop_key, uuid) == 1 then redis.call('PUBLISH', 'wake:' .. node, 'stop') end
    replies[i] = 'stopping'
  end
end
emit_story(stopped)
emit_story(stopping)
return replies

-- Stores a certificate, unless the present one lasts longer. The caller may have lost the lease: what it
-- ordered is valid all the same.
-- Reply: 'OK' | 'KEPT' (the one that is there)
local certificate_key = head_keys()
-- `key` is encrypted. `not_before` and `not_after` are in seconds.
local host, id, chain, key, not_before, not_after, directory = head_args()
local current_id, current_end, current_directory = unpack(
  redis.call('HMGET', certificate_key, 'id', 'not_after', 'directory'), 1, 3)

-- A lost reply, or another proxy has put it back.
if current_id == id then return 'OK' end
if current_directory == directory and (tonumber(current_end) or 0) > tonumber(not_after) then return 'KEPT' end

redis.call('HSET', certificate_key, 'id', id, 'chain', chain, 'key', key, 'not_before', not_before,
  'not_after', not_after, 'directory', directory, 'stored_at', STAMP)
redis.call('HDEL', certificate_key, 'attempt', 'attempts', 'begun_at', 'token', 'authorization', 'error', 'failed_at',
  'wait_ms')
expire_certificate(certificate_key, not_after)
emit('cluster', 'certificate/' .. host, 'CertificateStored', '', '', '', 'there is a certificate for ' .. host)
redis.call('PUBLISH', 'wake:certificates', host)
return 'OK'

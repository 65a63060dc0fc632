-- Sets the id of the cluster as the last step of a recovery: then its workers register and serve on.
-- Reply: 'OK' | 'OTHER' (this Redis knows another cluster)
local services = head_keys()
-- The id that the caller has seen, or ''. It is replaced only if that cluster has no services.
local cluster, seen = head_args()
local current = read_meta('cluster')[1] or ''
local service_count = redis.call('SCARD', services)
if current == cluster then return 'OK' end
if current ~= seen or (current ~= '' and service_count > 0) then return 'OTHER' end
redis.call('HSET', META, 'cluster', cluster)
emit('cluster', cluster, 'ClusterRecovered', '', '', '', 'this Redis knows the cluster again')
return 'OK'

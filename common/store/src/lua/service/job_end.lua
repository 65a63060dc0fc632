-- Ends a job that has failed, or whose completions are all there.
-- Reply: 'OK' | 'CHANGED' (it has ended, is being deleted or lacks completions: read it again)
local service_key, done = head_keys()
local service, failure = head_args()
redis.call('HLEN', service_key)
local completed = redis.call('HLEN', done)
local completions = running_job(service_key)
if not completions then return 'CHANGED' end
if (completed >= completions) ~= (failure == '') then return 'CHANGED' end
end_job(service_key, service, completions, failure)
return 'OK'

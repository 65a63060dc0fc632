//! Takes the ticks of crons, and limits the history of their ended jobs.
//!
//! Each tick has its job once, at most `catch_up` late: one script records a tick and creates its job, and a
//! failover loses both together.
//!
//! Reads all crons in regular passes, and one at once after a hint.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use daemon::control_loop::{Loop, Next};
use model::RedisMillis;
use model::ids::ServiceName;
use model::service::{Service, ServiceState};
use model::spec::{Concurrency, Kind};
use store::{Store, StoreError, Subscription, TickOutcome, channel};
use store::{pending_hints, tick_or_hints};

use crate::context::SchedulerContext;
use crate::cron::{CronJob, CronStep, job_name, step, surplus_history};
use crate::loop_lease::{LeaseStanding, LoopLease};

const LEASE_TIME: Duration = Duration::from_secs(4);
/// For crons without a hint.
const PASS_INTERVAL: Duration = Duration::from_secs(10);
/// Redis' clock may be changed.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// While pods of a replaced job end.
const WAIT_INTERVAL: Duration = Duration::from_millis(200);
const HINT_WINDOW: Duration = Duration::from_millis(20);
/// Per check of one cron.
const MAX_STEPS: usize = 20;

pub(crate) struct CronLoop {
    store: Store,
    lease: LoopLease,
    hints: Subscription,
    next_pass_at: Instant,
    crons: HashMap<ServiceName, Instant>,
    /// Each is logged once.
    broken: HashSet<ServiceName>,
}

impl Loop<StoreError> for CronLoop {
    const NAME: &'static str = "cron";

    async fn step(&mut self) -> Result<Next, StoreError> {
        match self.lease.acquire().await? {
            LeaseStanding::Kept => {}
            LeaseStanding::New => {
                tracing::debug!("this scheduler now creates the jobs of crons");
                self.next_pass_at = Instant::now();
            }
            LeaseStanding::Without => {
                self.crons.clear();
                return Ok(Next::Rest);
            }
        }
        if Instant::now() >= self.next_pass_at {
            let names = self.store.service_names().await?;
            self.look_for_crons(&names).await?;
            self.next_pass_at = Instant::now() + PASS_INTERVAL;
        }
        let now = Instant::now();
        let due: Vec<ServiceName> =
            self.crons.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            match self.look_at(&name).await {
                Ok(Some(wait)) => {
                    self.broken.remove(&name);
                    self.crons.insert(name, Instant::now() + wait);
                }
                Ok(None) => drop(self.crons.remove(&name)),
                Err(error) if error.is_transient() && !error.is_out_of_memory() => return Err(error),
                Err(error) => {
                    if self.broken.insert(name.clone()) {
                        tracing::error!(cron = %name, "no job of the cron can be created: {error}; retrying");
                    }
                    self.crons.insert(name, Instant::now() + MAX_SLEEP);
                }
            }
            self.lease.renew().await?;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let next = self.crons.values().min().copied().unwrap_or(self.next_pass_at).min(self.next_pass_at);
        let interval = self.lease.renewal_interval();
        let wait = if self.lease.is_held() { next.saturating_duration_since(now) } else { interval };
        let mut hints = tick_or_hints(wait.min(interval), &mut self.hints).await;
        if self.lease.is_held() && !hints.is_empty() {
            // Each pod that ends publishes one.
            tokio::time::sleep(HINT_WINDOW).await;
            hints.extend(pending_hints(&mut self.hints));
            let named: HashSet<ServiceName> = hints.iter().filter_map(hinted).collect();
            self.look_for_crons(&named.into_iter().collect::<Vec<_>>()).await?;
        }
        Ok(())
    }
}

fn hinted(hint: &Bytes) -> Option<ServiceName> {
    let text = std::str::from_utf8(hint).ok()?;
    ServiceName::new(text.strip_prefix("created ").unwrap_or(text)).ok()
}

impl CronLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let now = Instant::now();
        Self {
            store: context.store.clone(),
            lease: LoopLease::new(&context.store, &context.id, Self::NAME, LEASE_TIME),
            hints: context.store.subscribe(channel::RECONCILE),
            next_pass_at: now,
            crons: HashMap::new(),
            broken: HashSet::new(),
        }
    }

    /// Schedules the crons among these services, and those of jobs among them: they may have a surplus job.
    async fn look_for_crons(&mut self, names: &[ServiceName]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        let crons = self.store.crons_among(names).await?;
        let now = Instant::now();
        self.crons.extend(crons.into_iter().map(|name| (name, now)));
        Ok(())
    }

    /// Returns when to check again, if it still is a cron.
    async fn look_at(&self, name: &ServiceName) -> Result<Option<Duration>, StoreError> {
        for _ in 0..MAX_STEPS {
            let seen_now = self.store.redis_now().await?;
            let Some(cron) = self.store.service(name).await? else { return Ok(None) };
            if cron.kind() != Kind::Cron || cron.state == ServiceState::Deleting {
                return Ok(None);
            }
            let runs = self.store.runs_of(name).await?;
            let names: Vec<ServiceName> = runs.into_iter().map(|(name, _)| name).collect();
            let jobs = self.store.services(&names).await?;
            // Removed by hand.
            self.store.forget_runs(name, &jobs.missing(&names)).await?;
            let mut jobs = jobs.found();
            jobs.retain(|job| job.progress.of_cron.as_ref().is_some_and(|(of, _)| of == name));
            let since = self.settled(cron.schedule.since, seen_now).await?;
            let with_pods = self.with_pods(&cron, &jobs).await?;
            match step(&cron, &with_pods, since, seen_now) {
                CronStep::Take(tick) => {
                    let Some(job) = job_name(name, tick.tick) else { return Ok(None) };
                    let outcome = self.store.take_tick(&cron, &job, &tick).await?;
                    if let TickOutcome::Taken(_) = outcome {
                        tracing::debug!(cron = %name, %job, skipped = tick.skipped.is_some(), "took a tick");
                    }
                }
                CronStep::Replace(jobs) => {
                    for job in jobs {
                        let why = "the next time of its cron has come, and concurrency is replace";
                        self.store.end_job(&job, Some(("Replaced", why))).await?;
                    }
                }
                CronStep::Wait => return Ok(Some(WAIT_INTERVAL)),
                CronStep::Sleep(next) => {
                    self.trim_history(&cron, &jobs).await?;
                    let until = next.map(|tick| until_tick(tick, seen_now));
                    return Ok(Some(until.map_or(MAX_SLEEP, |until| until.min(MAX_SLEEP))));
                }
            }
        }
        Ok(Some(Duration::ZERO))
    }

    /// Counts pods only if a successor waits for these jobs.
    async fn with_pods<'a>(
        &self,
        cron: &Service,
        jobs: &'a [Service],
    ) -> Result<Vec<CronJob<'a>>, StoreError> {
        let is_replacing =
            cron.fields.cron.as_ref().is_some_and(|policy| policy.concurrency == Concurrency::Replace);
        let mut with_pods = Vec::with_capacity(jobs.len());
        for service in jobs {
            let mut active_pods = 0;
            if is_replacing && !service.progress.is_complete() {
                let ids: Vec<_> =
                    self.store.slots(&service.name).await?.into_iter().map(|(_, id)| id).collect();
                let pods = self.store.pods(&ids).await?.found();
                let own = pods.iter().filter(|pod| pod.service.as_ref() == Some(&service.name));
                active_pods = own.filter(|pod| !pod.phase.is_terminal()).count();
            }
            with_pods.push(CronJob { service, active_pods });
        }
        Ok(with_pods)
    }

    /// A future time of a former master counts as the moment of the failover.
    async fn settled(&self, at: RedisMillis, now: RedisMillis) -> Result<RedisMillis, StoreError> {
        if at <= now {
            return Ok(at);
        }
        Ok(self.store.master_changed_at().await?.map_or(now, |taken_over_at| taken_over_at.min(now)))
    }

    async fn trim_history(&self, cron: &Service, jobs: &[Service]) -> Result<(), StoreError> {
        let Some(policy) = &cron.fields.cron else { return Ok(()) };
        let jobs: Vec<&Service> = jobs.iter().collect();
        for job in surplus_history(policy, &jobs) {
            self.store.delete_service_if(&job.name, Some(job.revision)).await?;
        }
        Ok(())
    }
}

fn until_tick(tick: i64, now: RedisMillis) -> Duration {
    let at = RedisMillis::try_from(tick).unwrap_or_default().saturating_mul(1000);
    Duration::from_millis(at.saturating_sub(now))
}

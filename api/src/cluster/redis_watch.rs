//! Checks regularly that Redis accepts writes and would survive its next fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use store::{ProbeReport, Redundancy, SentinelReport, Store, StoreError, WriteProbe};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::older_state::EventMemory;
use crate::cluster::shared_answer::SharedAnswer;

/// The cause of an outage whose error is about one key or command.
pub(crate) const OTHER_CAUSE: &str = "other";
const INTERVAL: Duration = Duration::from_secs(1);
const MAX_EVENTS: usize = 500;
const PROBE_MAX_AGE: Duration = Duration::from_millis(500);
const SENTINELS_MAX_AGE: Duration = Duration::from_secs(4);
/// For a lost replica that no Sentinel remembers: it may have been removed on purpose.
const REMEMBER_REPLICA: Duration = Duration::from_secs(3600);

pub(crate) struct RedisWatch {
    store: Store,
    probe: WriteProbe,
    latest: SharedAnswer<Arc<ProbeReport>>,
    sentinels: SharedAnswer<Arc<Vec<SentinelReport>>>,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    outage_since: Option<Instant>,
    replicas: BTreeMap<String, Instant>,
    events: EventMemory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteOutage {
    pub(crate) cause: &'static str,
    pub(crate) text: String,
    pub(crate) lasts: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct RedisCondition {
    pub(crate) outage: Option<WriteOutage>,
    /// With the version; empty if unknown.
    pub(crate) product: String,
    pub(crate) redundancy: Redundancy,
    pub(crate) has_lost_aof: bool,
    pub(crate) loss: Option<String>,
}

impl RedisWatch {
    pub(crate) fn new(store: Store) -> Self {
        let probe = store.write_probe(&uuid::Uuid::new_v4().simple().to_string());
        Self {
            store,
            probe,
            latest: SharedAnswer::new(PROBE_MAX_AGE),
            sentinels: SharedAnswer::new(SENTINELS_MAX_AGE),
            history: Mutex::default(),
        }
    }

    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let look = async {
            loop {
                self.condition().await;
                if let Err(error) = self.follow_events().await {
                    tracing::debug!(%error, "events cannot be read");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        shutdown.run_until_cancelled(look).await;
    }

    pub(crate) async fn follow_events(&self) -> Result<(), StoreError> {
        let last = self.history.lock().events.last().map(str::to_owned);
        let Some(last) = last else {
            let newest = self.store.last_events(1).await?;
            self.history.lock().events.note(&newest);
            return Ok(());
        };
        let found = self.store.event_until(&last).await?;
        self.history.lock().events.compare(found.as_ref());
        let last = self.history.lock().events.last().map(str::to_owned);
        if let Some(last) = last {
            let events = self.store.events_after(&last, MAX_EVENTS).await?;
            self.history.lock().events.note(&events);
        }
        Ok(())
    }

    pub(crate) async fn outage(&self) -> Option<WriteOutage> {
        let report = self.probe().await;
        // The Sentinels' answers only name missing replicas: no probe of this process waits for them.
        self.condition_of(&report, &self.sentinels.known().unwrap_or_default()).outage
    }

    pub(crate) async fn condition(&self) -> RedisCondition {
        let (report, sentinels) = tokio::join!(self.probe(), self.sentinels());
        self.condition_of(&report, &sentinels)
    }

    async fn probe(&self) -> Arc<ProbeReport> {
        let ask = || async {
            let report = Arc::new(self.probe.run().await);
            self.note(&report);
            report
        };
        self.latest.latest_or(ask).await
    }

    async fn sentinels(&self) -> Arc<Vec<SentinelReport>> {
        self.sentinels.latest_or(|| self.store.inspect_sentinels().map(Arc::new)).await
    }

    fn note(&self, report: &ProbeReport) {
        let (mut history, now) = (self.history.lock(), Instant::now());
        history.replicas.retain(|_, last_seen| now.duration_since(*last_seen) < REMEMBER_REPLICA);
        let attached = report.server.iter().flat_map(|server| &server.replicas);
        history.replicas.extend(attached.map(|replica| (replica.address.clone(), now)));
        match (&report.writes, history.outage_since) {
            (Err(error), None) => {
                tracing::error!(%error, "Redis takes no writes; nothing starts or moves until it does");
                history.outage_since = Some(now);
            }
            (Ok(()), Some(since)) => {
                let seconds = now.duration_since(since).as_secs();
                tracing::warn!("Redis takes writes again after {seconds} s");
                history.outage_since = None;
            }
            (Ok(()), None) | (Err(_), Some(_)) => {}
        }
    }

    fn condition_of(&self, report: &ProbeReport, sentinels: &[SentinelReport]) -> RedisCondition {
        let history = self.history.lock();
        let remembered: BTreeSet<String> = history.replicas.keys().cloned().collect();
        let redundancy = Redundancy::of(report.server.as_ref(), report.min_replicas, sentinels, &remembered);
        let outage = report.writes.as_ref().err().map(|error| {
            let cause = error.cause().unwrap_or(OTHER_CAUSE);
            let missing: Vec<&str> = redundancy.missing().collect();
            let away = match (cause, missing.is_empty()) {
                ("noreplicas", false) => format!("; away or too far behind: {}", missing.join(", ")),
                _ => String::new(),
            };
            let lasts = history.outage_since.map(|since| since.elapsed()).unwrap_or_default();
            WriteOutage { cause, text: format!("{error}{away}"), lasts }
        });
        let product = report.server.as_ref().map(|server| server.product.clone()).unwrap_or_default();
        let (has_lost_aof, loss) = (report.has_lost_aof, history.events.loss());
        RedisCondition { outage, product, redundancy, has_lost_aof, loss }
    }
}

impl RedisCondition {
    /// One sentence each; a write outage comes first.
    pub(crate) fn problems(&self, fence_after: Duration) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(WriteOutage { text, lasts, .. }) = &self.outage {
            problems.push(format!(
                "Redis takes no writes, since {} s: {text}. Nothing starts or moves, the states of pods and nodes below \
                 are those of before; pods with `on_disconnect: stop` stop after {} s, all others run on",
                lasts.as_secs(),
                fence_after.as_secs()
            ));
        }
        problems.extend(self.loss.clone());
        problems.extend(self.redundancy.concerns.iter().cloned());
        if self.has_lost_aof {
            problems.push(
                "the append-only file of Redis was switched off: a restart loses all writes from now on; \
                 `CONFIG SET appendonly yes`, or `HDEL meta appendonly` if that is meant"
                    .to_owned(),
            );
        }
        problems
    }
}

//! Resource usage of pods and machine, measured while a client asks, and rarely for the metrics of this
//! process.
//!
//! Tests: beside the code, scenarios::usage

pub(crate) mod machine;
pub(crate) mod rates;
mod report;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::config::MetricsListen;
use daemon::control_loop::{Loop, Next};
use model::node::usage::{Usage, UsageReport};
use store::{StoreError, Subscription, channel};
use tokio::time::Instant;

use self::report::Measurement;
use crate::session::context::SessionContext;
use crate::support::measure;

const WANTED_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_INTERVAL: Duration = Duration::from_millis(700);
const METRICS_INTERVAL: Duration = Duration::from_secs(15);
/// Hints may be lost.
const ASK_INTERVAL: Duration = Duration::from_secs(30);
/// The rate since an older measurement would not describe the present.
const MAX_SPAN: Duration = Duration::from_secs(40);

pub(crate) struct UsageLoop {
    context: Arc<SessionContext>,
    hints: Subscription,
    last: Option<Measurement>,
    recorded: BTreeSet<String>,
    is_wanted: bool,
    ask_at: Instant,
    metrics_at: Option<Instant>,
}

impl Loop<StoreError> for UsageLoop {
    const NAME: &'static str = "usage";
    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    /// Nothing depends on it.
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, StoreError> {
        let context = self.context.clone();
        let (store, node) = (&context.worker.store, &context.worker.node);
        if Instant::now() >= self.ask_at {
            self.ask_at = Instant::now() + ASK_INTERVAL;
            self.is_wanted = store.is_usage_wanted(node).await?;
        }
        let metrics_due = self.metrics_at.is_some_and(|due| Instant::now() >= due);
        if !self.is_wanted && !metrics_due {
            return Ok(Next::Rest);
        }
        if self.is_wanted && self.last.as_ref().is_none_or(|last| last.age() > MAX_SPAN) {
            self.last = Some(Measurement::take(&self.context).await);
            tokio::time::sleep(FIRST_INTERVAL).await;
        }
        let report = self.measure().await;
        if metrics_due {
            self.metrics_at = Some(Instant::now() + METRICS_INTERVAL);
            self.record_metrics(&report);
        }
        if self.is_wanted {
            self.is_wanted = store.write_usage(node, &report).await?;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let due = if self.is_wanted { Instant::now() + WANTED_INTERVAL } else { self.ask_at };
        let due = self.metrics_at.map_or(due, |metrics_at| metrics_at.min(due));
        let node = self.context.worker.node.clone();
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => return Ok(()),
                message = self.hints.next() => {
                    let concerns = message.is_empty() || *message == *b"*" || *message == *node.as_str().as_bytes();
                    if concerns && !self.is_wanted {
                        self.ask_at = Instant::now();
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl UsageLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        let hints = context.worker.store.subscribe(channel::USAGE);
        let worker = &context.worker;
        let serves_metrics = worker.config.metrics_listen != MetricsListen::Off && worker.uses_machine;
        Self {
            hints,
            last: None,
            recorded: BTreeSet::new(),
            is_wanted: false,
            ask_at: Instant::now(),
            metrics_at: serves_metrics.then(|| Instant::now() + METRICS_INTERVAL),
            context,
        }
    }

    /// Metrics of pods that are gone become zero.
    fn record_metrics(&mut self, report: &UsageReport) {
        let node = &self.context.worker.node;
        let gone = std::mem::take(&mut self.recorded);
        for pod in &report.pods {
            measure::pod_uses(node, &pod.name, &pod.usage);
            self.recorded.insert(pod.name.clone());
        }
        for name in gone.difference(&self.recorded) {
            measure::pod_uses(node, name, &Usage::default());
        }
    }

    async fn measure(&mut self) -> UsageReport {
        let now = Measurement::take(&self.context).await;
        let report = now.since(self.last.as_ref().filter(|last| last.age() <= MAX_SPAN));
        self.last = Some(now);
        report
    }
}

//! The heartbeat loop: keeps the lease valid, and checks this node's pods against Redis in turn.
//!
//! Restores invariant 5 (a pod runs under a valid lease or is fenced) and invariant 3 (a worker that was
//! declared dead learns so at its next call). It waits only for Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::control_loop::{Loop, Next};
use futures_util::FutureExt;
use model::ids::PodId;
use store::{StoreError, Subscription, WorkerHint, channel};
use tokio::time::Instant;

use crate::answer::{recovery, requests};
use crate::node::engine_health::CheckedCall;
use crate::session::beat::{self, HeartbeatError};
use crate::session::context::SessionContext;

/// The checks of all workers together: about a thirtieth of Redis' capacity.
const CHECKS_PER_SECOND: f64 = 4_000.0;
const MIN_CHECKS: usize = 4;
const MAX_CHECKS: usize = 64;
/// A burst of requests is one heartbeat.
const MIN_GAP: Duration = Duration::from_millis(20);
/// The fence, or a pass, must finish first.
const UNLEASED_PERIOD: Duration = Duration::from_millis(250);

pub(crate) struct HeartbeatLoop {
    context: Arc<SessionContext>,
    subscription: Subscription,
    due: Instant,
    last_sent: Option<Instant>,
    /// Registration counted as a heartbeat.
    has_just_registered: bool,
    last_checked: Option<PodId>,
    is_ping_in_flight: Arc<AtomicBool>,
}

impl Loop<StoreError> for HeartbeatLoop {
    const NAME: &'static str = "heartbeat";
    const LOGS_FAILURES: bool = false;

    async fn step(&mut self) -> Result<Next, StoreError> {
        if self.has_just_registered {
            self.has_just_registered = false;
            return Ok(Next::Rest);
        }
        self.ping_engine();
        let context = &self.context;
        let period = context.worker.config.timing.heartbeat;
        let count = checks_per_heartbeat(period, context.throttle.nodes());
        let checked = context.table.assignments_after(self.last_checked.as_ref(), count);
        self.last_checked = checked.last().map(|(pod, _)| pod.clone());
        let sent = Instant::now();
        self.last_sent = Some(sent);
        match beat::beat(context, &checked).await {
            Ok(outcome) => {
                beat::settle(context, &checked, &outcome);
                let is_leased = context.worker.is_leased();
                self.due = sent + if is_leased { period } else { period.min(UNLEASED_PERIOD) };
                Ok(Next::Rest)
            }
            Err(HeartbeatError::Fenced) => Ok(Next::End),
            Err(HeartbeatError::Store(error)) => Err(error),
        }
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        self.wait().await;
        Ok(())
    }

    fn backoff(&self) -> Backoff {
        let period = self.context.worker.config.timing.heartbeat;
        Backoff::new(Duration::from_millis(100), period.min(Duration::from_secs(2)))
    }

    /// The first message after a lost connection shows that Redis is back.
    async fn back_off(&mut self, pause: Duration) {
        self.due = Instant::now() + pause;
        self.wait().await;
    }
}

impl HeartbeatLoop {
    pub(crate) fn new(context: Arc<SessionContext>) -> Self {
        let worker = &context.worker;
        let subscription = worker.store.subscribe(&channel::worker(&worker.node));
        // Thousands of workers may have registered at the same time.
        let due = Instant::now() + worker.config.timing.heartbeat.mul_f64(rand::random::<f64>());
        Self {
            context,
            subscription,
            due,
            last_sent: None,
            has_just_registered: true,
            last_checked: None,
            is_ping_in_flight: Arc::default(),
        }
    }

    async fn wait(&mut self) {
        if let Some(last_sent) = self.last_sent {
            tokio::time::sleep_until(last_sent + MIN_GAP).await;
        }
        let (mut may_have_requests, mut may_have_recovery) = (false, false);
        let wakeups = &self.context.wakeups;
        let mut read = |message: &[u8]| match WorkerHint::read(message) {
            Some(WorkerHint::Discard) => wakeups.request_full_reconcile(),
            Some(WorkerHint::Volumes) => wakeups.request_volumes(),
            Some(WorkerHint::Requests) => may_have_requests = true,
            Some(WorkerHint::Recovery) => may_have_recovery = true,
            Some(WorkerHint::Missed) => (may_have_requests, may_have_recovery) = (true, true),
            Some(WorkerHint::Stop) | None => {}
        };
        tokio::select! {
            () = tokio::time::sleep_until(self.due) => {}
            () = self.context.wakeups.heartbeat_requested() => {}
            message = self.subscription.next() => read(&message),
        }
        while let Some(message) = self.subscription.next().now_or_never() {
            read(&message);
        }
        if may_have_requests {
            requests::serve(&self.context);
        }
        if may_have_recovery {
            recovery::serve(&self.context);
        }
    }

    fn ping_engine(&self) {
        if self.is_ping_in_flight.swap(true, Ordering::AcqRel) {
            return;
        }
        let context = self.context.clone();
        let is_ping_in_flight = self.is_ping_in_flight.clone();
        self.context.tasks.spawn(async move {
            let answer = context.worker.runtime.ping().await;
            if context.worker.engine.record(CheckedCall::Ping, &answer) {
                context.wakeups.request_heartbeat();
            }
            is_ping_in_flight.store(false, Ordering::Release);
        });
    }
}

fn checks_per_heartbeat(period: Duration, nodes: u64) -> usize {
    let checks = CHECKS_PER_SECOND * period.as_secs_f64() / nodes.max(1) as f64;
    (checks as usize).clamp(MIN_CHECKS, MAX_CHECKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_nodes_the_fewer_pods_each_heartbeat_checks() {
        let at_5_s = |nodes| checks_per_heartbeat(Duration::from_secs(5), nodes);
        assert_eq!([at_5_s(0), at_5_s(3), at_5_s(1_000), at_5_s(5_000), at_5_s(50_000)], [64, 64, 20, 4, 4]);
    }
}

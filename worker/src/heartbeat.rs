//! The heartbeat loop: renews the lease, and learns what is to be stopped. Invariants 3 and 5.
//!
//! It waits for nothing but Redis: the engine is pinged beside it and its last answer is what is told. A beat is also
//! how containers are asked about: which of them are not this node's any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::RedisMillis;
use common::clock::BootInstant;
use common::ids::{AssignmentId, PodId};
use common::store::{HeartbeatReply, channel};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::backoff::{Backoff, jittered};
use crate::life::{Heard, Life};
use crate::logs;
use crate::worker::Asked;

/// How many pods all workers together ask about in passing each second: a thirtieth of Redis,
const ASKED: f64 = 4_000.0;
/// with so many in one beat at least,
const LEAST: usize = 4;
/// and so many at most.
const MOST: usize = 64;
/// Least time between two beats, so that a burst of wishes is one beat.
const GAP: Duration = Duration::from_millis(20);
/// Between two beats while Redis answers and the lease is not good: the fence or a look has something to do first.
const UNLEASED: Duration = Duration::from_millis(250);

/// Beats until the life ends.
pub(crate) async fn run(life: Arc<Life>) {
    let period = life.worker.config.timing.heartbeat;
    let mut subscription = life.worker.store.subscribe(&channel::worker(&life.worker.node));
    let mut backoff = Backoff::new(Duration::from_millis(100), period.min(Duration::from_secs(2)));
    // Beats go round all pods of this node, a slice with each.
    let mut after = None;
    // Registering was as good as a beat; thousands that registered at a time shall not beat at a time.
    let mut next = Instant::now() + period.mul_f64(rand::random::<f64>());
    loop {
        let mut logs_wanted = false;
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = life.beat_now.notified() => {}
            message = subscription.next() => logs_wanted = asks_for_logs(&message),
        }
        while let Some(message) = subscription.next().now_or_never() {
            logs_wanted |= asks_for_logs(&message);
        }
        if logs_wanted {
            logs::serve(&life);
        }
        ping(&life);
        let asked = life.table.claims_after(after.as_ref(), slice(period, life.courtesy.nodes()));
        after = asked.last().map(|(pod, _)| pod.clone());
        let started = Instant::now();
        next = match beat(&life, &asked).await {
            Some(told) => {
                backoff.reset();
                disown(&life, &asked, &told.foreign);
                started + if life.worker.is_leased() { period } else { period.min(UNLEASED) }
            }
            None => Instant::now() + jittered(backoff.next()),
        };
        tokio::time::sleep_until(started + GAP).await;
    }
}

/// Anything but the message that something is to be stopped; an empty one says that messages were missed.
fn asks_for_logs(message: &[u8]) -> bool {
    message != b"stop"
}

/// What a heartbeat was told.
pub(crate) struct Told {
    /// When it was sent, or a little earlier.
    pub(crate) sent: BootInstant,
    /// When the master that answered took over.
    pub(crate) master_changed_at: RedisMillis,
    /// Those asked about that are not this node's.
    pub(crate) foreign: Vec<PodId>,
}

/// One heartbeat. None when there was no good answer. Each pod may be asked about once.
///
/// It renews the lease, unless something may run here that must not run twice and that this master has given, or may
/// give, to others.
pub(crate) async fn beat(life: &Arc<Life>, asked: &[(PodId, AssignmentId)]) -> Option<Told> {
    let worker = &life.worker;
    let sent = worker.now();
    let started = Instant::now();
    let problem = worker.engine.problem();
    let answer = life.session.heartbeat((worker.pressure)().as_ref(), problem.as_deref(), asked).await;
    if let Ok(Err(fenced)) = answer {
        life.fence(fenced);
        return None;
    }
    let Heard::Answer(reply) = life.heard("the heartbeat", answer) else { return None };
    metrics::histogram!("kubeleet_heartbeat_seconds").record(started.elapsed().as_secs_f64());
    life.hears_redis();
    life.courtesy.hears_of(reply.nodes);
    if !reply.foreign.is_empty() {
        life.confirmed(None);
    }
    if life.is_confirmed_by(reply.master_changed_at) {
        renew(life, sent);
    } else {
        life.look_at_all();
    }
    Some(heed(life, reply, sent))
}

/// All is this node's: renews the lease from when that was asked.
pub(crate) fn renew(life: &Life, sent: BootInstant) {
    let was_good = life.worker.is_leased();
    life.worker.renew_lease(sent);
    if !was_good && life.worker.is_leased() {
        // What had to wait for the lease goes on, and what the fence took away is told.
        life.look_at_all();
    }
}

fn heed(life: &Arc<Life>, reply: HeartbeatReply, sent: BootInstant) -> Told {
    if life.sees_master_change(reply.master_changed_at) {
        life.table.recheck_all();
    }
    for pod in &reply.stop {
        if !life.table.stop(pod) {
            life.strangers.heard_of(pod);
        }
    }
    if !reply.stop.is_empty() {
        life.look();
    }
    Told { sent, master_changed_at: reply.master_changed_at, foreign: reply.foreign }
}

/// These pods are not this node's: stops what is held or started of them.
pub(crate) fn disown(life: &Arc<Life>, asked: &[(PodId, AssignmentId)], foreign: &[PodId]) {
    let mut any = false;
    for (pod, assignment) in asked.iter().filter(|(pod, _)| foreign.contains(pod)) {
        any |= life.table.disown(pod, assignment);
    }
    if any {
        life.look();
    }
}

/// Asks the engine how it is, beside everything else, one question at a time.
fn ping(life: &Arc<Life>) {
    if life.pinging.swap(true, Ordering::AcqRel) {
        return;
    }
    let asking = life.clone();
    life.spawn(async move {
        let answer = asking.worker.runtime.ping().await;
        if asking.worker.engine.heard(Asked::Ping, &answer) {
            asking.beat_now.notify_one();
        }
        asking.pinging.store(false, Ordering::Release);
    });
}

/// How many pods one beat asks about, where so many nodes beat.
fn slice(period: Duration, nodes: u64) -> usize {
    ((ASKED * period.as_secs_f64() / nodes.max(1) as f64) as usize).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn many_nodes_ask_about_fewer_pods_each() {
        let at_5_s = |nodes| slice(Duration::from_secs(5), nodes);
        assert_eq!([at_5_s(0), at_5_s(3), at_5_s(1_000), at_5_s(5_000), at_5_s(50_000)], [64, 64, 20, 4, 4]);
    }
}

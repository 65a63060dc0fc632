//! The supervisor: compares what the engine runs with what this node holds, and acts on the difference. Invariant 1.
//!
//! It looks whenever something hints that there may be a difference, and every 30 s although nothing does. A look reads
//! everything anew; the decision about each pod is [`step`]'s. What is held is left alone while something is being done
//! to it, and when it changed after the look began.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use common::clock::BootInstant;
use common::ids::{AssignmentId, PodId};
use common::spec::OnDisconnect;
use common::store::StoreError;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use crate::act;
use crate::adopt;
use crate::backoff::{Backoff, jittered};
use crate::heartbeat;
use crate::life::Life;
use crate::remove::remove;
use crate::runtime::{Container, ContainerState, Hint, RuntimeError};
use crate::step::{Facts, step};
use crate::strangers;
use crate::table::Held;
use crate::worker::Asked;

/// How many containers one beat asks about when a look found unknown ones.
const SLICE: usize = 256;
/// The containers of so many ended pods are kept for their logs.
const KEEP_ENDED: usize = 20;

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Engine(#[from] RuntimeError),
    #[error(transparent)]
    Redis(#[from] StoreError),
}

/// Supervises until the life ends.
pub(crate) async fn run(life: Arc<Life>) {
    let pace = &life.worker.pace;
    let mut hints = Hints::default();
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
    let mut next_full = Instant::now();
    loop {
        hints.open(&life).await;
        let begun = Instant::now();
        // While Redis is away what is held is looked after, and the rest waits for the next beat.
        let full = life.is_in_touch() && (life.takes_look_at_all() || begun >= next_full);
        let wait = match look(&life, full).await {
            Ok(()) => {
                backoff.reset();
                if full {
                    next_full = begun + pace.relist;
                    life.verified.cancel();
                }
                let until_full = next_full.saturating_duration_since(Instant::now());
                let until_full = if full || life.is_in_touch() { until_full } else { pace.relist };
                until_full.min(until_due(&life))
            }
            Err(error) => {
                tracing::debug!(node = %life.worker.node, %error, "could not look at the containers");
                if full {
                    life.look_at_all();
                }
                // A wish to look soon is no reason to hurry now.
                tokio::time::sleep(jittered(backoff.next())).await;
                Duration::ZERO
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = life.look_now.notified() => {}
            () = hints.next(&life) => {}
        }
        tokio::time::sleep_until(begun + pace.gap).await;
    }
}

/// How long until a pod's own time has come. The boot clock may run on while tokio's stands still: never very long.
fn until_due(life: &Life) -> Duration {
    let now = life.worker.now();
    let due = life.table.next_due(now).map_or(Duration::MAX, |at| at.since(now));
    due.min(Duration::from_secs(60))
}

/// One look at everything.
async fn look(life: &Arc<Life>, full: bool) -> Result<(), LookError> {
    // Without Redis nothing can be adopted, and what is held goes on being looked after all the same.
    let adopted = if full { adopt_all(life).await } else { Ok(()) };
    // What is held changes while the engine lists: only what was idle before and is unchanged after is decided upon.
    let idle = life.table.idle();
    let listed = life.worker.runtime.list(&life.worker.node).await;
    if life.worker.engine.heard(Asked::List, &listed) {
        life.beat_now.notify_one();
    }
    let containers = listed?;
    let by_pod: HashMap<_, _> = containers.iter().rev().map(|c| ((&c.pod, &c.assignment), c)).collect();
    for held in idle {
        let container = by_pod.get(&(&held.payload.id, &held.assignment)).copied();
        consider(life, held, container);
    }
    let unknown = containers.iter().filter(|c| !life.table.accounts_for(&c.handle, &c.pod, &c.assignment));
    if life.is_in_touch() {
        ask_about(life, unknown.cloned().collect()).await;
    }
    if full && !life.is_confirmed() {
        confirm(life, &containers).await;
    }
    expire(life, &containers);
    metrics::gauge!("kubeleet_worker_pods", "node" => life.worker.node.to_string())
        .set(life.table.held() as f64);
    Ok(adopted?)
}

async fn adopt_all(life: &Arc<Life>) -> Result<(), StoreError> {
    let adopted = async {
        adopt::adopt(life).await?;
        strangers::settle(life).await
    };
    adopted.await.inspect_err(|error| life.worker.redis.failed(error))
}

fn consider(life: &Arc<Life>, held: Held, container: Option<&Container>) {
    let facts = Facts {
        wish: held.wish,
        seen: container.map(|container| container.state),
        policy: held.rules.restart,
        leased: life.worker.is_leased(),
        keeps: held.rules.on_disconnect == OnDisconnect::Keep,
        streak: held.streak,
        up_since: held.up_since,
        restart_at: held.restart_at,
        retry_at: held.retry_at,
        now: life.worker.now(),
    };
    let action = step(&facts, &life.worker.patience());
    act::carry_out(life, held, container, action);
}

/// Asks Redis whose these containers are, and removes those that are not this node's. Without an answer nothing is
/// removed.
async fn ask_about(life: &Arc<Life>, mut unknown: Vec<Container>) {
    while !unknown.is_empty() {
        let (now, later) = slice(unknown, |container| &container.pod);
        let asked: Vec<(PodId, AssignmentId)> =
            now.iter().map(|container| (container.pod.clone(), container.assignment.clone())).collect();
        let Some(told) = heartbeat::beat(life, &asked).await else { return };
        for container in now.into_iter().filter(|container| told.foreign.contains(&container.pod)) {
            remove(life, container);
        }
        unknown = later;
    }
}

/// As many as one beat asks about, each pod once; and the others.
fn slice<T>(all: Vec<T>, pod: impl Fn(&T) -> &PodId) -> (Vec<T>, Vec<T>) {
    let mut pods = HashSet::new();
    all.into_iter().partition(|one| pods.len() < SLICE && pods.insert(pod(one).clone()))
}

/// Asks whether all is this node's that must not run twice and runs here, or may run in a moment. Where it is, the lease
/// is renewed from now on; where not, what is not has to go first.
async fn confirm(life: &Arc<Life>, containers: &[Container]) {
    let runs = |container: &&Container| !matches!(container.state, ContainerState::Exited { .. });
    let twice = |container: &&Container| container.on_disconnect == OnDisconnect::Stop;
    let here = containers.iter().filter(runs).filter(twice).map(|c| (c.pod.clone(), c.assignment.clone()));
    let mut rest: Vec<(PodId, AssignmentId)> = here.chain(life.table.never_twice()).collect();
    rest.sort_unstable();
    rest.dedup();
    let mut first = None;
    loop {
        let (now, later) = slice(rest, |(pod, _)| pod);
        let Some(told) = heartbeat::beat(life, &now).await else { return };
        if !told.foreign.is_empty() {
            return heartbeat::disown(life, &now, &told.foreign);
        }
        let (sent, by) = *first.get_or_insert((told.sent, told.master_changed_at));
        if told.master_changed_at != by {
            return;
        }
        if later.is_empty() {
            life.confirmed(Some(by));
            return heartbeat::renew(life, sent);
        }
        rest = later;
    }
}

/// Removes the containers of ended pods when there are too many of them or they are too old.
fn expire(life: &Arc<Life>, containers: &[Container]) {
    let now = life.worker.now();
    let keep = life.worker.pace.keep_ended.as_millis() as u64;
    let before = BootInstant { millis: now.millis.saturating_sub(keep) };
    let expired = life.table.expire_ended(KEEP_ENDED, before);
    let by_pod: HashMap<&PodId, &Container> = containers.iter().map(|c| (&c.pod, c)).collect();
    for (pod, assignment) in &expired {
        if let Some(container) = by_pod.get(pod).filter(|container| container.assignment == *assignment) {
            remove(life, (*container).clone());
        }
    }
}

/// The engine's hints, opened again when they end.
#[derive(Default)]
struct Hints {
    stream: Option<BoxStream<'static, Hint>>,
    /// An engine that refuses hints is not asked for them with each look.
    not_before: Option<Instant>,
    failing: bool,
}

impl Hints {
    async fn open(&mut self, life: &Life) {
        if self.stream.is_some() || self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.not_before = Some(Instant::now() + Duration::from_secs(1));
        match life.worker.runtime.hints(&life.worker.node).await {
            Ok(stream) => {
                self.stream = Some(stream);
                self.failing = false;
            }
            Err(error) => {
                self.not_before = Some(Instant::now() + Duration::from_secs(5));
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(node = %life.worker.node, %error, "the engine gives no hints; looking by the clock");
                }
            }
        }
    }

    /// Ends with the next hint that is news, or when the stream does. What comes of our own starts and stops is none: a look
    /// at everything for each of them would keep the engine from the others.
    async fn next(&mut self, life: &Life) {
        match &mut self.stream {
            Some(stream) => {
                while let Some(hint) = stream.next().await {
                    if hint.pod.is_none_or(|pod| life.table.is_news(&pod, hint.began)) {
                        return;
                    }
                }
                self.stream = None;
            }
            None => match self.not_before {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            },
        }
    }
}

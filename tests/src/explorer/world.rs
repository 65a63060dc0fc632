//! What the actors of one run move in: the model's clock, chance, faults, and everything that is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use ::redis::Value;
use common::ids::{AssignmentId, NodeName, PodId, SchedulerId};
use common::store::StoreError;

use super::checks;
use super::engine::{Container, Engine};
use super::failover::Past;
use super::ground::Ground;
use super::names::Names;
use super::random::Random;
use super::view::{Heads, Pod, View};
use super::who::{ACTORS, WORKERS, Who};
use super::wishes::Wishes;
use super::{Stats, Switches};

/// A heartbeat is due after so many ticks. A tick is a tenth of a second, and a step takes one.
pub(super) const HEARTBEAT: u64 = 50;
/// A lease is good for so long, from before its heartbeat was sent.
pub(super) const FENCE: u64 = 150;
/// A node may be declared dead when its last beat is older.
pub(super) const DEAD: u64 = 200;
/// After a change of master nobody is declared dead for so long.
pub(super) const PAUSE: u64 = 300;

/// What became of a call.
pub(super) struct Called<T> {
    /// What Redis answered, if it was asked at all. The explorer knows; the actor may not.
    pub(super) done: Option<T>,
    heard: bool,
}

impl<T> Called<T> {
    /// What the actor knows.
    pub(super) fn heard(self) -> Option<T> {
        self.done.filter(|_| self.heard)
    }
}

/// See the module.
pub(super) struct World<'a> {
    pub(super) ground: &'a Ground,
    pub(super) switches: Switches,
    pub(super) random: Random,
    pub(super) now: u64,
    /// How often faults strike: 0 never, 2 twice as often as 1.
    pub(super) fury: u64,
    /// How often the client wants something, of a thousand of its turns.
    pub(super) haste: u64,
    /// No more faults, and no more wishes.
    pub(super) settles: bool,
    pub(super) view: View,
    pub(super) seen: Value,
    pub(super) heads: Heads,
    pub(super) names: Names,
    pub(super) engine: Engine,
    /// Until when each worker counts on nobody else running its pods: in memory, and in its lease file.
    pub(super) leases: [Option<u64>; WORKERS],
    /// When Redis last processed a beat of each node.
    pub(super) beats: BTreeMap<String, u64>,
    /// Every scheduler there ever was, and when Redis last saw it.
    pub(super) schedulers: Vec<(SchedulerId, u64)>,
    pub(super) master_changed: Option<u64>,
    pub(super) wishes: Wishes,
    pub(super) past: Option<Past>,
    /// Until when each actor can not reach Redis.
    pub(super) cut_off: [u64; ACTORS],
    /// Nodes that a scheduler gave something to in this step.
    pub(super) given_to: BTreeSet<String>,
    /// Redis was asked for something since it was looked at.
    touched: bool,
    /// The call of this step comes from a worker that may not write: nothing may change.
    fenced_call: Option<String>,
    /// This call names assignments that are no more: these pods may not change.
    untouchable: Vec<(String, Option<Pod>)>,
    pub(super) wrong: Vec<String>,
    trace: Vec<String>,
    pub(super) stats: Stats,
}

impl<'a> World<'a> {
    pub(super) async fn new(ground: &'a Ground, seed: u64, switches: Switches) -> Self {
        ground.clear().await;
        let mut random = Random::new(seed);
        let fury = random.below(4) as u64;
        let haste = [200, 500, 1000][random.below(3)];
        let mut world = Self {
            ground,
            switches,
            random,
            now: 1000,
            fury,
            haste,
            settles: false,
            view: View::default(),
            seen: Value::Nil,
            heads: Heads::default(),
            names: Names::default(),
            engine: Engine::default(),
            leases: [None; WORKERS],
            beats: BTreeMap::new(),
            schedulers: Vec::new(),
            master_changed: None,
            wishes: Wishes::default(),
            past: None,
            cut_off: [0; ACTORS],
            given_to: BTreeSet::new(),
            touched: true,
            fenced_call: None,
            untouchable: Vec::new(),
            wrong: Vec::new(),
            trace: Vec::new(),
            stats: Stats::default(),
        };
        world.observe().await;
        world
    }

    /// Asks Redis, unless a fault is in the way.
    pub(super) async fn call<T>(
        &mut self,
        who: Who,
        what: impl Display,
        verb: impl Future<Output = Result<T, StoreError>>,
    ) -> Called<T> {
        self.stats.calls += 1;
        if self.cut_off[who.index()] > self.now || (!self.settles && self.random.per_mille(8 * self.fury)) {
            self.stats.cut += 1;
            self.say(who, format!("{what} -> cut off"));
            return Called { done: None, heard: false };
        }
        let heard = self.settles || !self.random.per_mille(20 * self.fury);
        self.stats.lost_replies += u64::from(!heard);
        self.say(who, format!("{what}{}", if heard { "" } else { " -> reply lost" }));
        self.touched = true;
        match verb.await {
            Ok(done) => Called { done: Some(done), heard },
            Err(error) => {
                self.wrong.push(format!("{what}: {error}"));
                Called { done: None, heard: false }
            }
        }
    }

    /// The next call is made as this life of a worker: when it may not write, nothing may change. Invariant 3.
    pub(super) fn as_life(&mut self, who: Who, incarnation: &str) {
        let node = self.view.nodes.get(&who.to_string());
        if !node.is_some_and(|node| node.state == "alive" && node.incarnation == incarnation) {
            self.fenced_call =
                Some(format!("invariant 3: a call of a fenced life of {who} changed something"));
        }
    }

    /// The next call writes about these pods as these assignments: where they are others by now, nothing may change.
    /// Invariant 3.
    pub(super) fn as_assignments<'i>(
        &mut self,
        pods: impl IntoIterator<Item = (&'i PodId, &'i AssignmentId)>,
    ) {
        for (pod, assignment) in pods {
            let record = self.view.pods.get(pod.as_str()).cloned();
            if record.as_ref().is_none_or(|record| record.assignment != assignment.as_str()) {
                self.untouchable.push((pod.to_string(), record));
            }
        }
    }

    /// Takes a line into the trace.
    pub(super) fn say(&mut self, who: impl Display, what: impl Display) {
        self.trace.push(format!("{:>6} {who:<6} {what}", self.now));
    }

    /// Adds to the last line of the trace.
    pub(super) fn note(&mut self, what: impl Display) {
        if let Some(line) = self.trace.last_mut() {
            line.push_str(&format!(" -> {what}"));
        }
    }

    pub(super) fn trace(self) -> Vec<String> {
        self.trace
    }

    /// Looks at Redis, and checks what must hold at every instant.
    pub(super) async fn observe(&mut self) {
        let fenced = self.fenced_call.take();
        let untouchable = std::mem::take(&mut self.untouchable);
        self.wrong.extend(checks::twice(self));
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let fresh = self.ground.look().await;
        if fresh == self.seen {
            return;
        }
        self.wrong.extend(fenced);
        self.view = View::of(&fresh);
        self.seen = fresh;
        self.names.learn(&self.view);
        for (uuid, _) in
            untouchable.into_iter().filter(|(uuid, before)| self.view.pods.get(uuid) != before.as_ref())
        {
            self.wrong.push(format!(
                "invariant 3: {} changed by a call of an older assignment",
                self.names.of(&uuid)
            ));
        }
        let found = checks::violations(self);
        self.wrong.extend(found);
        let given_to = std::mem::take(&mut self.given_to);
        self.wrong.extend(checks::overcommitted(&self.view, &given_to));
    }

    pub(super) fn is_leased(&self, worker: usize) -> bool {
        self.leases[worker].is_some_and(|deadline| self.now < deadline)
    }

    /// There was a lease, and it has run out.
    pub(super) fn is_lease_out(&self, worker: usize) -> bool {
        self.leases[worker].is_some_and(|deadline| self.now >= deadline)
    }

    /// For how long a node has been silent, as far as Redis knows.
    pub(super) fn silence(&self, node: &NodeName) -> u64 {
        self.now - self.beats.get(node.as_str()).copied().unwrap_or(0)
    }

    /// Workers that run something that must never run twice, and that Redis has given to somebody else or to nobody.
    pub(super) fn runs_what_is_not_its_own(&self) -> Vec<usize> {
        let is_foreign = |container: &&Container| {
            let record = self.view.pods.get(container.pod.as_str());
            container.never_twice && record.is_none_or(|pod| pod.assignment != container.assignment.as_str())
        };
        let mut hosts: Vec<usize> = self.engine.all().iter().filter(is_foreign).map(|c| c.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether some node is about to be declared dead, or was.
    pub(super) fn somebody_is_silent(&self) -> bool {
        self.beats.values().any(|at| self.now > at + DEAD - HEARTBEAT)
    }

    /// How long Redis shall say to wait after a change of master: for ever until the model's time is over.
    pub(super) fn pause(&self, ticks: u64) -> std::time::Duration {
        let over = self.master_changed.is_none_or(|at| self.now >= at + ticks);
        std::time::Duration::from_secs(if over || self.switches.no_pause { 0 } else { 3600 })
    }

    /// Pods by their names, for the trace.
    pub(super) fn called<'i>(&self, pods: impl IntoIterator<Item = &'i PodId>) -> String {
        let mut names: Vec<_> = pods.into_iter().map(|pod| self.names.of(pod.as_str())).collect();
        names.sort();
        format!("[{}]", names.join(" "))
    }

    /// What a payload is called.
    pub(super) fn label(&mut self, raw: &[u8]) -> String {
        match self.heads.pod_of(raw) {
            Some(uuid) => self.names.of(uuid),
            None => String::from_utf8_lossy(raw).into_owned(),
        }
    }

    /// In the order in which their pods appeared: Redis' sets have none.
    pub(super) fn sorted(&mut self, mut raws: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        raws.sort_by_cached_key(|raw| {
            let order = self.heads.pod_of(raw).map(|uuid| self.names.order(uuid));
            (order.unwrap_or(usize::MAX), if order.is_none() { raw.clone() } else { Vec::new() })
        });
        raws
    }

    /// LPUSH, as by hand.
    pub(super) async fn push(&mut self, queue: &str, payload: &str) {
        self.touched = true;
        let () = self.ground.cli(&["LPUSH", queue, payload]).await;
    }

    /// A drained set comes into `sq` in the order of its hashes, which is another one in every run. Nothing depends on
    /// the order, so it is made the same.
    pub(super) async fn put_sq_in_order(&mut self) {
        let waiting: Vec<Vec<u8>> = self.ground.cli(&["LRANGE", "sq", "0", "-1"]).await;
        if waiting.len() > 1 {
            let mut words = vec![b"RPUSH".to_vec(), b"sq".to_vec()];
            words.extend(self.sorted(waiting));
            let () = self.ground.cli(&["DEL", "sq"]).await;
            let () = self.ground.cli(&words).await;
        }
    }
}

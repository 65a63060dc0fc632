//! What the processes of one run live in: time, chance, faults, and everything that is checked.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::path::Path;

use ::redis::Value;

use super::api::Desk;
use super::bus::{Request, SharedBus};
use super::checks;
use super::failover::Past;
use super::host::{Host, never_twice};
use super::random::Random;
use super::redis::Redis;
use super::scripts::Scripts;
use super::seat::{Hint, Seat, Times};
use super::view::{Heads, Pod, READ, View};
use super::who::{PROCESSES, WORKERS, Who};
use super::{Stats, Switches};
use crate::Ablation;

/// Who waits for a time of its own may be so late without anybody wondering.
const HARDLY_ANY: u64 = 5;

/// So many times only what may have changed is looked at, then all of it.
const PART_LOOKS: u64 = 100;

/// See the module.
pub(super) struct World {
    pub(super) redis: Redis,
    pub(super) scripts: Scripts,
    look: String,
    pub(super) switches: Switches,
    pub(super) random: Random,
    /// Milliseconds.
    pub(super) now: u64,
    /// How far Redis' clock is ahead.
    pub(super) redis_ahead: u64,
    pub(super) times: Times,
    /// Milliseconds that pass with a step, at most.
    stride: u64,
    /// How often faults strike: 0 never, 2 twice as often as 1.
    pub(super) fury: u64,
    pub(super) has_failovers: bool,
    /// No more faults, and no more wishes.
    pub(super) settles: bool,
    pub(super) desk: Desk,
    pub(super) bus: SharedBus,
    pub(super) hosts: Vec<Host>,
    /// When each host was booted.
    pub(super) booted: [u64; WORKERS],
    pub(super) engine_hangs_until: [u64; WORKERS],
    pub(super) seats: Vec<Seat>,
    pub(super) lives: u64,
    /// Nobody is answered before.
    pub(super) stalled_until: u64,
    pub(super) hints: Vec<Hint>,
    /// What will never be answered, kept so that whoever waits for it does.
    pub(super) limbo: Vec<Request>,
    /// Connections on which no answer comes any more.
    pub(super) mute: HashSet<u64>,
    /// Of all lives of all workers.
    pub(super) incarnations: HashSet<Vec<u8>>,
    /// When Redis last processed a beat of each worker.
    pub(super) beats: [u64; WORKERS],
    pub(super) view: View,
    /// What was read since, and is not in the view yet.
    pub(super) rows: Vec<Value>,
    part_looks: u64,
    pub(super) heads: Heads,
    pub(super) known_pods: BTreeSet<String>,
    pub(super) past: Option<Past>,
    pub(super) master_changed: Option<u64>,
    /// What was executed last comes from a worker that may not write: nothing may change.
    pub(super) fenced: Option<String>,
    /// It names assignments that are no more: these pods may not change.
    pub(super) untouchable: HashMap<String, Option<Pod>>,
    /// It gives pods to nodes.
    pub(super) assigns: bool,
    pub(super) wrong: Vec<String>,
    /// All that happened, where somebody wants to read it.
    trace: Option<Vec<String>>,
    /// Time that has passed since everybody was driven last.
    undriven: u64,
    pub(super) stats: Stats,
}

impl World {
    pub(super) fn new(
        redis: &Path,
        seed: u64,
        switches: Switches,
        ablation: Option<Ablation>,
        traced: bool,
    ) -> Self {
        let mut redis = Redis::connect(redis);
        redis.ask(&["FLUSHALL"]);
        let scripts = Scripts::load(&mut redis, ablation);
        let Value::BulkString(look) = redis.ask(&["SCRIPT", "LOAD", READ]) else { panic!("no hash") };
        let mut random = Random::new(seed);
        let bus = SharedBus::default();
        let long = random.per_mille(100);
        let times = if long {
            Times { heartbeat: 5000, fence: 15_000, dead: 20_000, pause: 30_000 }
        } else {
            Times { heartbeat: 1500, fence: 4500, dead: 6000, pause: 9000 }
        };
        let fury = random.below(4) as u64;
        let has_failovers = fury > 0 && random.per_mille(600);
        let slow_disk = random.per_mille(300);
        let now = 10_000_000;
        let mut world = Self {
            redis,
            scripts,
            look: String::from_utf8(look).unwrap(),
            switches,
            now,
            redis_ahead: 0,
            times,
            stride: [4, 10, 25, 60][random.below(4)],
            fury,
            has_failovers,
            settles: false,
            desk: Desk::new(Random::new(random.next())),
            hosts: (0..WORKERS).map(|host| Host::new(Who::Worker(host), bus.clone(), slow_disk)).collect(),
            booted: std::array::from_fn(|_| now - 1_000_000 * random.between(1, 9)),
            engine_hangs_until: [0; WORKERS],
            seats: (0..PROCESSES).map(|_| Seat::default()).collect(),
            bus,
            lives: 0,
            stalled_until: 0,
            hints: Vec::new(),
            limbo: Vec::new(),
            mute: HashSet::new(),
            incarnations: HashSet::new(),
            beats: [now; WORKERS],
            view: View::default(),
            rows: Vec::new(),
            part_looks: 0,
            heads: Heads::default(),
            known_pods: BTreeSet::new(),
            past: None,
            master_changed: None,
            fenced: None,
            untouchable: HashMap::new(),
            assigns: false,
            wrong: Vec::new(),
            trace: traced.then(Vec::new),
            undriven: 0,
            stats: Stats::default(),
            random,
        };
        world.observe();
        world
    }

    /// No more faults and no more wishes.
    pub(super) fn settle(&mut self) {
        self.settles = true;
        // Redis is not that slow for ever.
        self.stride = self.stride.min(10);
        self.past = None;
        self.stalled_until = 0;
        self.engine_hangs_until = [0; WORKERS];
        for seat in &mut self.seats {
            (seat.cut_until, seat.paused_until, seat.suspended_until) = (0, 0, 0);
        }
        self.desk.lock().content = true;
        self.say("", "no more faults");
    }

    /// One step: time passes, at most one thing happens, everybody goes on as far as it can, all is checked.
    ///
    /// # Errors
    /// What does not hold any more.
    pub(super) fn step(&mut self) -> Result<(), Vec<String>> {
        let within = self.pass_time();
        if !self.settles {
            self.strike(within);
            self.push(within);
        }
        self.revive();
        self.wake();
        let concerned = self.happen();
        self.drive(concerned, within);
        self.observe();
        if self.wrong.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.wrong)) }
    }

    fn pass_time(&mut self) -> u64 {
        // Now and then nobody does anything for a while.
        let within = if self.random.per_mille(1) {
            self.random.between(1000, 5000)
        } else if self.is_anything_ready() {
            self.random.between(0, self.stride)
        } else {
            self.random.between(5, 60)
        };
        self.now += within;
        self.bus.lock().now = self.now;
        self.desk.lock().now = self.now;
        for (host, booted) in self.hosts.iter().zip(self.booted) {
            host.set_clock(self.now - booted);
        }
        for seat in &mut self.seats {
            if self.now < seat.suspended_until {
                seat.slept += within;
            }
        }
        within
    }

    /// Lets everybody go on that can; when hardly any time has passed, only whom it concerns what happened.
    fn drive(&mut self, concerned: Option<Who>, within: u64) {
        self.undriven += within;
        let all = self.undriven >= HARDLY_ANY;
        if all {
            self.undriven = 0;
        }
        for index in 0..PROCESSES {
            let seat = &mut self.seats[index];
            let goes_on = all || concerned.is_some_and(|who| who.index() == index);
            if !goes_on || (self.now < seat.paused_until && !self.settles) {
                continue;
            }
            let Some(process) = &seat.process else { continue };
            process.drive(self.now - seat.slept, || self.bus.lock().asked);
            if process.has_ended() {
                self.say(Who::at(index), "ended");
                let until = self.seats[index].down_until.max(self.now + 1000);
                self.kill(Who::at(index), until);
            }
        }
    }

    /// Takes in what was read, and checks what must hold at every instant.
    pub(super) fn observe(&mut self) {
        self.wrong.extend(checks::twice(self));
        let fenced = self.fenced.take();
        let untouchable = std::mem::take(&mut self.untouchable);
        let before = std::mem::take(&mut self.assigns).then(|| self.view.nodes.clone());
        let mut changed = false;
        for rows in std::mem::take(&mut self.rows) {
            changed |= self.view.take(rows);
            self.part_looks += 1;
        }
        if self.part_looks > PART_LOOKS {
            self.look_at_all();
        }
        if !changed {
            return;
        }
        self.know_pods();
        self.wrong.extend(fenced);
        let changed = untouchable.into_iter().filter(|(uuid, pod)| self.view.pods.get(uuid) != pod.as_ref());
        let changed = changed.map(|(uuid, _)| format!("invariant 3: {uuid} changed by an older assignment"));
        self.wrong.extend(changed);
        if let Some(before) = before {
            self.wrong.extend(checks::overcommitted(&before, &self.view.nodes));
        }
        let found = checks::violations(self);
        self.wrong.extend(found);
    }

    /// Carries out a command that changes these keys, and reads what they are then.
    pub(super) fn change(&mut self, words: &[impl AsRef<[u8]>], keys: &[impl AsRef<[u8]>]) -> Value {
        self.redis.add(words);
        self.look_at(keys);
        let [reply, rows] = self.redis.answers(0);
        assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
        self.rows.push(rows);
        reply
    }

    /// To be read with what is asked next: these keys.
    pub(super) fn look_at(&mut self, keys: &[impl AsRef<[u8]>]) {
        let count = keys.len().to_string();
        let words = [b"EVALSHA", self.look.as_bytes(), count.as_bytes()];
        let words: Vec<&[u8]> = words.into_iter().chain(keys.iter().map(AsRef::as_ref)).collect();
        self.redis.add(&words);
    }

    /// Reads all of Redis: nothing may have changed but what scripts have declared.
    pub(super) fn look_at_all(&mut self) {
        let differing = self.refresh();
        if !differing.is_empty() {
            self.wrong.push(format!("changed, and no script has declared it: {differing:?}"));
        }
    }

    /// Reads all of Redis; gives the keys that are not what they were.
    pub(super) fn refresh(&mut self) -> Vec<String> {
        let mut all = View::default();
        all.take(self.redis.ask(&["EVALSHA", &self.look, "0"]));
        let differing = self.view.differing(&all);
        (self.view, self.part_looks) = (all, 0);
        self.know_pods();
        differing
    }

    fn know_pods(&mut self) {
        let known = &mut self.known_pods;
        for uuid in self.view.pods.keys() {
            if !known.contains(uuid) {
                known.insert(uuid.clone());
            }
        }
    }

    /// Takes a line into the trace.
    pub(super) fn say(&mut self, who: impl Display, what: impl Display) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9} {who:<5} {what}", self.now - 10_000_000));
        }
    }

    pub(super) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(super) fn trace(self) -> Vec<String> {
        self.trace.unwrap_or_default()
    }

    /// Redis' clock.
    pub(super) fn redis_now(&self) -> u64 {
        1_700_000_000_000 + self.now + self.redis_ahead
    }

    /// For how long Redis has not processed a beat of a worker.
    pub(super) fn silence(&self, host: usize) -> u64 {
        self.now - self.beats[host]
    }

    /// When the lease of a host ends.
    pub(super) fn lease_end(&self, host: usize) -> u64 {
        self.hosts[host].lease().map_or(0, |deadline| deadline + self.booted[host])
    }

    /// Workers that run something that must never run twice, and that Redis has given to somebody else or to nobody.
    pub(super) fn runs_what_is_not_its_own(&self) -> Vec<usize> {
        let is_foreign = |container: &worker::runtime::Container| {
            let record = self.view.pods.get(container.pod.as_str());
            never_twice(container) && record.is_none_or(|pod| pod.assignment != container.assignment.as_str())
        };
        (0..WORKERS).filter(|host| self.hosts[*host].running().iter().any(is_foreign)).collect()
    }

    /// Whether some node is about to be declared dead, or was.
    pub(super) fn somebody_is_silent(&self) -> bool {
        (0..WORKERS).any(|host| self.silence(host) + self.times.heartbeat > self.times.dead)
    }
}

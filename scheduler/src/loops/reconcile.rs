//! Makes services what somebody wants them to be.
//!
//! Restores invariant 1, and 2 after a failover that lost writes: every service has exactly its pods, of its newest
//! generation, and every pod's payload is where its phase says. One scheduler at a time does this, to save work; two
//! at a time do no harm, because every script checks again.
//!
//! Looks at a service at once when somebody says that it changed, and at everything from time to time.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::ids::{NodeName, PodId, SchedulerId, ServiceName};
use common::lifecycle::Phase;
use common::node::NodeState;
use common::payload::Payload;
use common::pod::PodRecord;
use common::service::MADE_AT_ONCE;
use common::store::{Store, StoreError, Subscription, channel};
use rand::seq::SliceRandom;

use crate::Context;
use crate::reconcile::apply::{carry_out, read_slots, requeue};
use crate::reconcile::plan::plan;
use crate::reconcile::suspicion::{Facts, is_suspicious};
use crate::runner::{Loop, Next, heard_already, tick_or_hints};

/// The lease is renewed so often, and lapses after [`LEASE`].
const TICK: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(8);
/// Hints that come within so long of each other are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// One whose pods are being made is looked at again after this.
const WHILE_MADE: Duration = Duration::from_millis(250);
/// What a plan frees can be planned with at once, so many times; later by the next hint or pass.
const ROUNDS: usize = 4;
/// A service is looked at again after this many times the time it took to look, so that a large one, whose every pod
/// says that it changed, takes a fifth of one loop and no more.
const BREATHER: u32 = 4;
const LONGEST_BREATHER: Duration = Duration::from_secs(5);
/// Everything is not looked at more often than this, even if hints may have been missed.
const LEAST_BETWEEN_PASSES: Duration = Duration::from_secs(2);
/// With more waiting than this, a pod that waits is no reason to wonder.
const SHORT: u64 = 10_000;
/// Entries of queues that one pass may compare, more or less: a second of Redis.
const COMPARISONS: u64 = 2_000_000;
/// Pods looked for in one pass.
const LEAST_LOOKED_FOR: u64 = 100;
const MOST_LOOKED_FOR: u64 = 20_000;

/// The loop.
pub(crate) struct Reconcile {
    store: Store,
    id: SchedulerId,
    hints: Subscription,
    full_pass: Duration,
    patience: Duration,
    leading: bool,
    renewed: Instant,
    pass_due: Instant,
    pass_ended: Instant,
    /// Services somebody named, and when each may be looked at.
    named: HashSet<ServiceName>,
    rested: HashMap<ServiceName, Instant>,
    /// Of those, services of which nobody has said more than that they were created: whoever did makes their pods.
    created: HashSet<ServiceName>,
    /// Services that missed many pods, and how many each had at the last look.
    in_the_making: HashMap<ServiceName, u64>,
    /// Services that can not be reconciled: said once each.
    broken: HashSet<ServiceName>,
}

impl Loop for Reconcile {
    const NAME: &'static str = "reconcile";

    async fn step(&mut self) -> Result<Next, StoreError> {
        if !self.lead().await? {
            self.forget_hints();
            return Ok(Next::Rest);
        }
        if Instant::now() >= self.pass_due {
            // Taken first: what is named from here on is looked at afterwards.
            self.forget_hints();
            self.pass().await?;
            return Ok(Next::Rest);
        }
        let due = self.due();
        let counts = self.how_far(&due).await?;
        for (name, counts) in due.into_iter().zip(counts) {
            let is_new = self.created.remove(&name);
            if is_new && counts.is_some_and(|(made, wanted)| made == wanted) {
                self.named.remove(&name);
                continue;
            }
            if let Some(rest) = self.rest_for_makers(&name, counts) {
                self.rested.insert(name, Instant::now() + rest);
                continue;
            }
            let begun = Instant::now();
            let healed = self.heal(&name, None, &mut Vec::new()).await;
            self.judge(&name, healed)?;
            self.named.remove(&name);
            let breather = (begun.elapsed() * BREATHER).min(LONGEST_BREATHER);
            self.rested.insert(name, Instant::now() + breather);
            self.keep_leading().await?;
        }
        self.rested.retain(|_, until| *until > Instant::now());
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        if !self.leading {
            // Whoever leads hears the same hints; whoever leads next looks at everything.
            tokio::time::sleep(TICK).await;
            drop(heard_already(&mut self.hints));
            return Ok(());
        }
        let now = Instant::now();
        let pass = self.pass_due.saturating_duration_since(now);
        let named = self.named.iter().map(|name| self.ready_at(name).saturating_duration_since(now)).min();
        let wait = pass.min(named.unwrap_or(TICK)).min(TICK);
        let heard = tick_or_hints(wait, &mut self.hints).await;
        self.hear(&heard);
        if !heard.is_empty() {
            // What is said at once by many pods is one piece of news.
            tokio::time::sleep(GATHER).await;
            let heard = heard_already(&mut self.hints);
            self.hear(&heard);
        }
        Ok(())
    }
}

impl Reconcile {
    pub(crate) fn new(context: &Context) -> Self {
        let now = Instant::now();
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            hints: context.store.subscribe(channel::RECONCILE),
            full_pass: context.pace.full_pass,
            patience: context.pace.suspicious_after,
            leading: false,
            renewed: now,
            pass_due: now,
            pass_ended: now,
            named: HashSet::new(),
            rested: HashMap::new(),
            created: HashSet::new(),
            in_the_making: HashMap::new(),
            broken: HashSet::new(),
        }
    }

    fn hear(&mut self, heard: &[Bytes]) {
        for message in heard {
            let text = std::str::from_utf8(message).unwrap_or_default();
            let name = |text: &str| ServiceName::new(text).ok();
            if let Some(name) = text.strip_prefix("created ").and_then(name) {
                self.hear_of_new(name);
            } else if let Some(name) = name(text) {
                if self.created.remove(&name) {
                    self.rested.remove(&name);
                }
                self.named.insert(name);
            } else {
                // Hints may have been missed.
                self.pass_due = self.pass_due.min(self.pass_ended + LEAST_BETWEEN_PASSES);
            }
        }
    }

    fn hear_of_new(&mut self, name: ServiceName) {
        if self.named.insert(name.clone()) {
            self.rested.insert(name.clone(), Instant::now() + WHILE_MADE);
            self.created.insert(name);
        }
    }

    fn forget_hints(&mut self) {
        self.named.clear();
        self.created.clear();
    }

    async fn lead(&mut self) -> Result<bool, StoreError> {
        if self.leading && self.renewed.elapsed() < TICK / 2 {
            return Ok(true);
        }
        let leading = self.store.lease("reconcile", &self.id, LEASE).await?;
        self.renewed = Instant::now();
        if leading && !self.leading {
            tracing::debug!("reconciling from now on");
            self.pass_due = Instant::now();
        }
        self.leading = leading;
        Ok(leading)
    }

    /// Renews the lease when it is time, in the middle of long work. Losing it is noticed in the next step.
    async fn keep_leading(&mut self) -> Result<(), StoreError> {
        if self.renewed.elapsed() >= TICK {
            self.store.lease("reconcile", &self.id, LEASE).await?;
            self.renewed = Instant::now();
        }
        Ok(())
    }

    fn ready_at(&self, name: &ServiceName) -> Instant {
        self.rested.get(name).copied().unwrap_or(self.pass_ended)
    }

    fn due(&self) -> Vec<ServiceName> {
        let now = Instant::now();
        self.named.iter().filter(|name| self.ready_at(name) <= now).cloned().collect()
    }

    /// How many pods each of these has and should have. What can not be read is healing's to say.
    async fn how_far(&self, names: &[ServiceName]) -> Result<Vec<Option<(u64, u64)>>, StoreError> {
        match self.store.how_far(names).await {
            Err(error) if !error.is_transient() => Ok(vec![None; names.len()]),
            counts => counts,
        }
    }

    /// How long a service is left alone because many of its pods are missing and somebody makes them right now: the API,
    /// after a POST. To read all of them meanwhile would only be in the way, and that is so for a while after the last.
    /// Should the API die, their number stands still.
    fn rest_for_makers(&mut self, name: &ServiceName, counts: Option<(u64, u64)>) -> Option<Duration> {
        let before = self.in_the_making.remove(name);
        let (made, wanted) = counts?;
        if made + u64::from(MADE_AT_ONCE) >= wanted {
            return before.map(|_| LONGEST_BREATHER);
        }
        let stands_still = before == Some(made);
        if stands_still {
            return None;
        }
        self.in_the_making.insert(name.clone(), made);
        Some(WHILE_MADE)
    }

    /// Looks at everything.
    async fn pass(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        let lengths = self.store.queue_lengths().await?;
        let in_line = lengths.waiting + lengths.in_flight;
        let facts = self.read_facts(in_line < SHORT).await?;
        let mut suspects = Vec::new();
        let services = self.store.service_names().await?;
        self.broken.retain(|name| services.contains(name));
        self.in_the_making.retain(|name, _| services.contains(name));
        for name in services {
            let healed = self.heal(&name, Some(&facts), &mut suspects).await;
            self.judge(&name, healed)?;
            self.keep_leading().await?;
        }
        suspects.extend(self.look_at_pushed(&facts).await?);
        self.look_for(suspects, in_line).await?;
        self.pass_ended = Instant::now();
        self.pass_due = self.pass_ended + self.full_pass.max(begun.elapsed() * BREATHER);
        Ok(())
    }

    async fn read_facts(&self, queues_are_short: bool) -> Result<Facts, StoreError> {
        // In this order: what changes from here on is too young to be suspicious.
        let now = self.store.redis_now().await?;
        let names = self.store.node_names().await?;
        let (nodes, _) = self.store.nodes_each(&names).await?;
        let mut sets = HashMap::new();
        for node in nodes.into_iter().filter(|node| node.state == NodeState::Alive) {
            if let Some(set) = self.container_set(&node.name).await? {
                sets.insert(node.name, set);
            }
        }
        Ok(Facts { now, patience: self.patience, queues_are_short, sets: Some(sets) })
    }

    /// None when somebody broke the key: then its pods look suspicious, and the script that would requeue them fails.
    async fn container_set(&self, name: &NodeName) -> Result<Option<HashSet<PodId>>, StoreError> {
        match self.store.container_set(name).await {
            Ok(set) => {
                let ids = set.into_iter().filter_map(|raw| Payload::parse(raw).ok()).map(|head| head.id);
                Ok(Some(ids.collect()))
            }
            Err(error) if error.is_transient() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Plans and carries out until there is nothing to do now; adds the pods that may have lost their payload.
    async fn heal(
        &self,
        name: &ServiceName,
        facts: Option<&Facts>,
        suspects: &mut Vec<PodRecord>,
    ) -> Result<(), StoreError> {
        let alone;
        let facts = match facts {
            Some(facts) => facts,
            None => {
                // One service: its pods' payloads are the full pass' matter.
                alone =
                    Facts { now: self.store.redis_now().await?, patience: self.patience, ..Facts::default() };
                &alone
            }
        };
        for round in 1.. {
            let Some(service) = self.store.service(name).await? else { return Ok(()) };
            let (slots, unreadable) = read_slots(&self.store, &service).await?;
            let plan = plan(&service, &slots, facts);
            let more = !plan.changes_nothing() && carry_out(&self.store, &service, &plan).await?;
            if !more || round == ROUNDS {
                suspects.extend(plan.requeue);
                return unreadable.map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    /// An error that concerns this service alone is said once, and is no reason to leave the others.
    fn judge(&mut self, name: &ServiceName, done: Result<(), StoreError>) -> Result<(), StoreError> {
        match done {
            Ok(()) => drop(self.broken.remove(name)),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                if self.broken.insert(name.clone()) {
                    tracing::error!(service = %name, "this service can not be reconciled: {error}");
                }
            }
        }
        Ok(())
    }

    /// Pods somebody pushed are wanted until somebody stops them, and made by nobody but who pushed them.
    async fn look_at_pushed(&self, facts: &Facts) -> Result<Vec<PodRecord>, StoreError> {
        let ids = self.store.pushed_pods().await?;
        let records = self.store.pods_each(&ids).await?;
        let pods: Vec<PodRecord> = records.into_iter().filter_map(|record| record.ok().flatten()).collect();
        let again: Vec<_> = pods
            .iter()
            .filter(|pod| {
                pod.phase == Phase::Stopped || (pod.phase == Phase::Stopping && facts.is_settled(pod))
            })
            .map(|pod| (pod.id.clone(), pod.node.clone()))
            .collect();
        self.store.stop_pods(None, &again, "Stopping", "it was asked to stop before").await?;
        Ok(pods.into_iter().filter(|pod| is_suspicious(pod, facts)).collect())
    }

    /// Looks for the payloads of as many suspects as Redis can bear; of more, for those chance picks: it picks others
    /// the next time.
    async fn look_for(&self, mut suspects: Vec<PodRecord>, in_line: u64) -> Result<(), StoreError> {
        if suspects.is_empty() {
            return Ok(());
        }
        let most = (COMPARISONS / (in_line + 1)).clamp(LEAST_LOOKED_FOR, MOST_LOOKED_FOR) as usize;
        if suspects.len() > most {
            let (chosen, _) = suspects.partial_shuffle(&mut rand::rng(), most);
            suspects = chosen.to_vec();
        }
        let schedulers: Vec<SchedulerId> =
            self.store.schedulers().await?.into_iter().map(|(id, _)| id).collect();
        let put_back = requeue(&self.store, suspects, &schedulers).await?;
        if put_back > 0 {
            tracing::warn!("{put_back} pods had lost their payload and are queued again");
        }
        Ok(())
    }
}

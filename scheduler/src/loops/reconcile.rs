//! Ensures that every service has exactly its desired pods (invariant 1), and after a failover that lost
//! writes, that each payload is where the pod's phase says (invariant 2). A lease only saves work: every
//! script checks again.
//!
//! Reconciles a service at once after a hint, and everything in full passes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use daemon::control_loop::{Loop, Next};
use model::RedisMillis;
use model::ids::{Incarnation, NodeName, SchedulerId, ServiceName, SpecId};
use model::node::{Node, NodeInfo, NodeState};
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::service::{PODS_CREATED_INLINE, Service, ServiceState};
use model::spec::{JobPolicy, Kind};
use rand::seq::SliceRandom;
use store::{FormerSpecs, NodeUsage, Store, StoreError, Subscription, channel};
use store::{pending_hints, tick_or_hints};

use crate::context::SchedulerContext;
use crate::loop_lease::{LeaseStanding, LoopLease};
use crate::reconcile::apply::{
    STOPPED_AGAIN, carry_out, free_void, note_held, read_gone, read_slots, requeue, settle_times,
};
use crate::reconcile::apply_job::{carry_out_job, end_cron, settle_job_times};
use crate::reconcile::desired::DesiredSlots;
use crate::reconcile::job::{self, JobPlan, JobState};
use crate::reconcile::lost_payload::{ObservedState, may_have_lost_payload};
use crate::reconcile::lost_pods::{HeldBack, HeldReplicas, LostPods, held_replicas};
use crate::reconcile::plan::{is_replacing, plan, startable};
use crate::reconcile::replacements::{Replacements, SeenService};
use crate::reconcile::slots::{ReplicaSlot, SlotHolder};
use crate::reconcile::sums::{Drift, PassSums};
use crate::reconcile::violating_pods::ViolatingPods;
use crate::reconcile::violations::SeenNodes;
use crate::reconcile::{members, ordinals, preparing, unlisted};

const ENDED_POD_RETENTION: Duration = Duration::from_secs(24 * 3600);
const LEASE_TIME: Duration = Duration::from_secs(8);
const HINT_WINDOW: Duration = Duration::from_millis(20);
const CREATION_CHECK_INTERVAL: Duration = Duration::from_millis(250);
const UNFINISHED_JOB_INTERVAL: Duration = Duration::from_millis(200);
/// Begins a message about a node. See [`channel::RECONCILE`].
const NODE_HINT: &str = "node ";
/// A younger service is still being created.
const CREATION_TIME: Duration = Duration::from_secs(1);
/// A hint or a pass continues the rest.
const MAX_PLANS: usize = 4;
/// Times the last reconciliation: a large service takes at most a fifth of this loop.
const COOLDOWN_FACTOR: u32 = 4;
const MAX_COOLDOWN: Duration = Duration::from_secs(5);
/// Even if hints may have been missed.
const MIN_PASS_INTERVAL: Duration = Duration::from_secs(2);
/// Below it no pod should wait for long.
const SHORT_QUEUE_LENGTH: u64 = 10_000;
/// About one second of Redis.
const MAX_COMPARISONS: u64 = 2_000_000;
/// Payloads that one pass searches for.
const MIN_SEARCHES: u64 = 100;
const MAX_SEARCHES: u64 = 20_000;

pub(crate) struct ReconcileLoop {
    store: Store,
    id: SchedulerId,
    hints: Subscription,
    full_pass_interval: Duration,
    settle_time: Duration,
    dead_after: Duration,
    lease: LoopLease,
    next_pass_at: Instant,
    last_pass_ended_at: Instant,
    queued: HashSet<ServiceName>,
    cooldowns: HashMap<ServiceName, Instant>,
    /// Their creator also creates their pods.
    new_services: HashSet<ServiceName>,
    /// Services with many missing pods, and their number of pods at the last check.
    in_creation: HashMap<ServiceName, u64>,
    /// Nodes that come and go concern them.
    globals: BTreeSet<ServiceName>,
    replacements: Replacements,
    lost: LostPods,
    /// At the last full pass.
    held: HeldReplicas,
    /// Each is logged once.
    broken: HashSet<ServiceName>,
    /// Without a record, but with running pods. Each is logged once.
    unknown_services: BTreeSet<ServiceName>,
    /// As of the last pass.
    drifts: HashMap<(NodeName, Incarnation), Drift>,
    /// Each is logged once.
    broken_indexes: HashSet<&'static str>,
    violating: ViolatingPods,
}

struct PlannedStep {
    seen: SeenService,
    needs_another: bool,
    suspects: Vec<PodRecord>,
}

impl Loop<StoreError> for ReconcileLoop {
    const NAME: &'static str = "reconcile";

    async fn step(&mut self) -> Result<Next, StoreError> {
        match self.lease.acquire().await? {
            LeaseStanding::Kept => {}
            LeaseStanding::New => {
                tracing::debug!("this scheduler now reconciles services");
                // The subscription tells soon that hints may have been missed: the first pass sees all of it.
                tokio::time::sleep(HINT_WINDOW).await;
                self.next_pass_at = Instant::now();
            }
            LeaseStanding::Without => {
                self.forget_hints();
                return Ok(Next::Rest);
            }
        }
        if Instant::now() >= self.next_pass_at {
            // Before the pass: later hints are handled after it.
            self.forget_hints();
            self.full_pass().await?;
            return Ok(Next::Rest);
        }
        let due = self.due();
        let progress = self.store.creation_progress(&due).await?;
        let mut due: Vec<_> = due.into_iter().zip(progress).collect();
        // Stops go before creations, so that undoing a typo waits for nothing.
        due.sort_by_key(|(_, counts)| !counts.is_some_and(|(created, desired)| created > desired));
        for (name, counts) in due {
            let is_new = self.new_services.remove(&name);
            if is_new && counts.is_some_and(|(created, desired)| created == desired) {
                self.queued.remove(&name);
                continue;
            }
            if let Some(delay) = self.creation_delay(&name, counts) {
                self.cooldowns.insert(name, Instant::now() + delay);
                continue;
            }
            if counts.is_some_and(|(created, desired)| created == 0 && desired > 0)
                && self.may_have_lost_its_slots(&name).await?
            {
                self.queued.remove(&name);
                self.next_pass_at = self.next_pass_at.min(self.last_pass_ended_at + MIN_PASS_INTERVAL);
                continue;
            }
            let started = Instant::now();
            let result = self.reconcile(&name, None, &mut PassSums::default()).await;
            let result = self.note_replacement(&name, result);
            self.handle_result(&name, result)?;
            self.queued.remove(&name);
            let cooldown = (started.elapsed() * COOLDOWN_FACTOR).min(MAX_COOLDOWN);
            self.cooldowns.insert(name, Instant::now() + cooldown);
            self.lease.renew().await?;
        }
        self.cooldowns.retain(|_, until| *until > Instant::now());
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        if !self.lease.is_held() {
            // A new leader starts with a full pass.
            tokio::time::sleep(self.lease.renewal_interval()).await;
            return Ok(());
        }
        let now = Instant::now();
        let until_pass = self.next_pass_at.saturating_duration_since(now);
        let until_service =
            self.queued.iter().map(|name| self.ready_at(name).saturating_duration_since(now)).min();
        let until_step = self.replacements.next_due().map(|at| at.saturating_duration_since(now));
        let wait = until_pass.min(self.lease.renewal_interval());
        let wait = [until_service, until_step].into_iter().flatten().fold(wait, Duration::min);
        let hints = tick_or_hints(wait, &mut self.hints).await;
        self.handle_hints(&hints);
        if !hints.is_empty() {
            // Many pods often publish at the same time.
            tokio::time::sleep(HINT_WINDOW).await;
            let hints = pending_hints(&mut self.hints);
            self.handle_hints(&hints);
        }
        Ok(())
    }
}

impl ReconcileLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let now = Instant::now();
        Self {
            store: context.store.clone(),
            id: context.id.clone(),
            hints: context.store.subscribe(channel::RECONCILE),
            full_pass_interval: context.timings.full_pass_interval,
            settle_time: context.timings.settle_time,
            dead_after: context.timings.dead_after,
            lease: LoopLease::new(&context.store, &context.id, Self::NAME, LEASE_TIME),
            next_pass_at: now,
            last_pass_ended_at: now,
            queued: HashSet::new(),
            cooldowns: HashMap::new(),
            new_services: HashSet::new(),
            in_creation: HashMap::new(),
            globals: BTreeSet::new(),
            replacements: Replacements::default(),
            held: HeldReplicas::new(),
            lost: LostPods::new(context.timings.lost_record_wait),
            broken: HashSet::new(),
            unknown_services: BTreeSet::new(),
            drifts: HashMap::new(),
            broken_indexes: HashSet::new(),
            violating: ViolatingPods::new(context),
        }
    }

    fn handle_hints(&mut self, hints: &[Bytes]) {
        for hint in hints {
            let text = std::str::from_utf8(hint).unwrap_or_default();
            let service_name = |text: &str| ServiceName::new(text).ok();
            if let Some(name) = text.strip_prefix("created ").and_then(service_name) {
                self.queue_new(name);
            } else if text.starts_with(NODE_HINT) {
                self.queued.extend(self.globals.iter().cloned());
            } else if let Some(name) = service_name(text) {
                if self.new_services.remove(&name) {
                    self.cooldowns.remove(&name);
                }
                self.queued.insert(name);
            } else {
                // Some hints may have been missed.
                self.next_pass_at = self.next_pass_at.min(self.last_pass_ended_at + MIN_PASS_INTERVAL);
            }
        }
    }

    fn queue_new(&mut self, name: ServiceName) {
        if self.queued.insert(name.clone()) {
            self.cooldowns.insert(name.clone(), Instant::now() + CREATION_CHECK_INTERVAL);
            self.new_services.insert(name);
        }
    }

    /// Those that have arrived.
    fn forget_hints(&mut self) {
        drop(pending_hints(&mut self.hints));
        self.queued.clear();
        self.new_services.clear();
    }

    fn ready_at(&self, name: &ServiceName) -> Instant {
        self.cooldowns.get(name).copied().unwrap_or(self.last_pass_ended_at)
    }

    fn due(&mut self) -> Vec<ServiceName> {
        let now = Instant::now();
        self.queued.extend(self.replacements.take_due(now));
        self.queued.iter().filter(|name| self.ready_at(name) <= now).cloned().collect()
    }

    fn note_replacement(
        &mut self,
        name: &ServiceName,
        result: Result<SeenService, StoreError>,
    ) -> Result<(), StoreError> {
        let seen = result.as_ref().copied().unwrap_or_default();
        if seen.needs_pass {
            self.next_pass_at = self.next_pass_at.min(self.last_pass_ended_at + MIN_PASS_INTERVAL);
        }
        self.replacements.note(name, seen, Instant::now());
        result.map(drop)
    }

    /// Leaves a service alone while the API creates many of its pods: reading them would slow it down. If the
    /// API dies, their number stops growing.
    fn creation_delay(&mut self, name: &ServiceName, counts: Option<(u64, u64)>) -> Option<Duration> {
        let previous = self.in_creation.remove(name);
        let (created, desired) = counts?;
        if created + u64::from(PODS_CREATED_INLINE) >= desired {
            return previous.map(|_| MAX_COOLDOWN);
        }
        let has_stopped_growing = previous == Some(created);
        if has_stopped_growing {
            return None;
        }
        self.in_creation.insert(name.clone(), created);
        Some(CREATION_CHECK_INTERVAL)
    }

    async fn full_pass(&mut self) -> Result<(), StoreError> {
        let started = Instant::now();
        self.set_aside_wrong_types().await?;
        let lengths = self.store.queue_lengths().await?;
        let queue_length = lengths.waiting + lengths.in_flight;
        let restored = self.store.restore_members().await.map(|count| vec![(); count]);
        if !self.or_logged("the lists of nodes", restored)?.is_empty() {
            tracing::warn!("listed nodes again that were missing from `nodes` or `beats`");
        }
        // Before the pods: a later pod names none of these, unless one is reused, which is noticed. Later
        // assignments count as reservations.
        let former_specs = self.store.former_specs().await.map(|former| vec![former]);
        let former_specs =
            self.or_logged("the former specifications", former_specs)?.pop().unwrap_or_default();
        let nodes = self.store.node_names().await;
        let nodes = self.or_logged("the names of the nodes", nodes)?;
        let usage = self.store.node_usage(&nodes).await?;
        let observed = self.observe(queue_length < SHORT_QUEUE_LENGTH).await?;
        self.held = observed.held.clone();
        let mut sums = PassSums::default();
        let services = self.store.service_names().await;
        sums.is_incomplete |= services.is_err();
        let mut services = self.or_logged("the names of the services", services)?;
        if !sums.is_incomplete {
            self.list_services_of_pods(&mut services, &observed).await?;
        }
        // A pod in no slot is only known from its node.
        sums.is_incomplete |= observed.has_unreadable_nodes;
        self.broken.retain(|name| services.contains(name));
        self.in_creation.retain(|name, _| services.contains(name));
        self.globals.retain(|name| services.contains(name));
        self.replacements.retain(|name| services.contains(name));
        self.lost.retain(|name| services.contains(name), Instant::now());
        for name in services {
            let result = self.reconcile(&name, Some(&observed), &mut sums).await;
            let result = self.note_replacement(&name, result);
            sums.is_incomplete |= result.is_err();
            self.handle_result(&name, result)?;
            self.lease.renew().await?;
        }
        self.count_pods_of_unknown_services(&observed, &mut sums).await?;
        let pushed = self.reconcile_pushed_pods(&observed, &mut sums).await;
        sums.is_incomplete |= pushed.is_err();
        self.or_logged("the pushed pods", pushed.map(|()| Vec::<()>::new()))?;
        if !sums.is_incomplete {
            self.expire_specs(&former_specs, &sums).await?;
            self.correct_usage(&usage, &sums).await?;
        }
        self.restore_lost_payloads(sums.suspects, queue_length).await?;
        self.violating.move_away(sums.violations).await?;
        self.last_pass_ended_at = Instant::now();
        let pause = self.full_pass_interval.max(started.elapsed() * COOLDOWN_FACTOR);
        self.next_pass_at = self.last_pass_ended_at + pause;
        Ok(())
    }

    /// Moves keys away that would block more than one object. This pass or their writers rebuild them.
    async fn set_aside_wrong_types(&mut self) -> Result<(), StoreError> {
        let mut moved = self.store.set_aside_cluster_keys().await?;
        let nodes = self.store.node_names().await?;
        let mut schedulers: Vec<SchedulerId> =
            self.store.schedulers().await?.into_iter().map(|(id, _)| id).collect();
        // Not listed while its in-flight list has another type.
        schedulers.push(self.id.clone());
        moved.extend(self.store.set_aside_queues(&nodes, &schedulers).await?);
        for key in moved {
            tracing::error!(
                key,
                "another program wrote this key; it was moved to `broken:{key}`, which expires in a week, and \
                 kubeleet goes on with a new one"
            );
        }
        Ok(())
    }

    async fn observe(&mut self, queues_are_short: bool) -> Result<ObservedState, StoreError> {
        // First: a pod that changes later is too young to be a suspect.
        let now = self.store.redis_now().await?;
        let names = self.store.node_names().await;
        let names = self.or_logged("the names of the nodes", names)?;
        let nodes = self.store.nodes(&names).await?.found();
        let held = held_replicas(&nodes);
        let mut container_sets = HashMap::new();
        let mut on_nodes: HashMap<Option<ServiceName>, BTreeSet<_>> = HashMap::new();
        let mut has_unreadable_nodes = false;
        let (with_machine_ports, seen) =
            (Some(with_machine_ports(&nodes)), Some(Arc::new(SeenNodes::of(&nodes))));
        for node in nodes.into_iter().filter(|node| node.state == NodeState::Alive) {
            // First: a pod that starts meanwhile is in the set.
            let queued = payloads(self.store.queued_on(&node.name).await)?;
            let set = payloads(self.store.container_set(&node.name).await)?;
            has_unreadable_nodes |= queued.is_none() || set.is_none();
            for pod in queued.iter().chain(&set).flatten() {
                on_nodes.entry(pod.service()).or_default().insert(pod.id.clone());
            }
            if let Some(set) = set {
                container_sets.insert(node.name, set.into_iter().map(|pod| pod.id).collect());
            }
        }
        Ok(ObservedState {
            now,
            settle_time: self.settle_time,
            queues_are_short,
            container_sets: Some(container_sets),
            on_nodes,
            has_unreadable_nodes,
            with_machine_ports,
            nodes: seen,
            held,
        })
    }

    /// Its pods may still run: a full pass finds them, and nothing is created before.
    async fn may_have_lost_its_slots(&self, name: &ServiceName) -> Result<bool, StoreError> {
        let now = self.store.redis_now().await?;
        match self.store.service(name).await {
            Ok(service) => Ok(service.is_some_and(|service| {
                now.saturating_sub(service.updated_at) > self.settle_time.as_millis() as u64
            })),
            Err(error) if error.is_transient() => Err(error),
            // Reconciling it reports the error.
            Err(_) => Ok(false),
        }
    }

    /// Another program may have removed the slots of running pods.
    fn may_lack_slots_of_running_pods(
        &self,
        service: &Service,
        slots: &[ReplicaSlot],
        now: RedisMillis,
    ) -> bool {
        // A job always lacks some pods.
        let is_concerned = service.kind().is_service() && service.state == ServiceState::Active;
        let is_new = now.saturating_sub(service.created_at) < CREATION_TIME.as_millis() as RedisMillis;
        if !is_concerned || is_new || self.lost.knows(&service.name) {
            return false;
        }
        !startable(service, slots, DesiredSlots::of(service)).is_empty()
    }

    /// Until there is nothing to do now. Without `observed`, no pod is a suspect.
    async fn reconcile(
        &mut self,
        name: &ServiceName,
        observed: Option<&ObservedState>,
        sums: &mut PassSums,
    ) -> Result<SeenService, StoreError> {
        let only_time;
        let all = OnceLock::new();
        let mut observed = match observed {
            Some(observed) => observed,
            None => {
                let (now, settle_time) = (self.store.redis_now().await?, self.settle_time);
                // Until a restarted worker reports, the old report stands.
                let mut held = self.held.clone();
                for (service, replicas) in held_replicas(&self.store.holding_nodes().await?) {
                    held.entry(service).or_default().extend(replicas);
                }
                only_time = ObservedState { now, settle_time, held, ..ObservedState::default() };
                &only_time
            }
        };
        let (mut has_acted, mut has_followed) = (false, false);
        for round in 1.. {
            let Some(mut service) = self.store.service(name).await? else {
                return Ok(SeenService::default());
            };
            if service.kind() == Kind::Cron {
                let has_acted = end_cron(&self.store, &service).await?;
                sums.add_spec(&service.spec_id);
                return Ok(SeenService { is_replacing: has_acted, has_acted, ..SeenService::default() });
            }
            let (mut slots, mut unreadable) = read_slots(&self.store, &service).await?;
            let is_first_look = round == 1 && observed.container_sets.is_none();
            if is_first_look && self.may_lack_slots_of_running_pods(&service, &slots, observed.now) {
                let found = self.observe(false).await?;
                observed = all.get_or_init(|| found);
            }
            if round == 1 && self.list_again(&service, &slots, observed, sums).await? {
                (slots, unreadable) = read_slots(&self.store, &service).await?;
            }
            if Self::is_live_global(&service) && !has_followed {
                self.globals.insert(name.clone());
                has_followed = members::follow_nodes(&self.store, &mut service, &slots).await?;
                if !has_followed && round < MAX_PLANS {
                    continue;
                }
            }
            let mut gone = read_gone(&self.store, &service, self.lost.gone(name, &slots)).await?;
            let needs_pass =
                !gone.unlisted.is_empty() || slots.iter().any(|slot| slot.holder == SlotHolder::Void);
            if observed.container_sets.is_some() && !gone.unlisted.is_empty() {
                if unlisted::restore_gone(&self.store, &service, &gone.unlisted).await? {
                    continue;
                }
                gone.unlisted.clear();
            }
            let back = match service.state {
                ServiceState::Active => {
                    self.lost.hold_back(name, &mut slots, &gone, &observed.held, Instant::now())
                }
                ServiceState::Deleting => HeldBack::default(),
            };
            settle_times(&self.store, &service, &mut slots, observed.now).await?;
            let spec = service.spec_id.clone();
            let step = match (service.fields.job.clone(), service.state) {
                (Some(policy), ServiceState::Active) => {
                    self.take_job_step(&mut service, &policy, &slots, observed, &back).await?
                }
                // After the moves: a drain that is older than them must be seen.
                _ if !service.moves.is_empty()
                    || (observed.with_machine_ports.is_none() && is_replacing(&service, &slots)) =>
                {
                    let observed = self.with_nodes_of(&slots, observed).await?;
                    self.take_step(&service, &slots, &observed, back).await?
                }
                _ => self.take_step(&service, &slots, observed, back).await?,
            };
            has_acted |= step.seen.has_acted;
            if !step.needs_another || round == MAX_PLANS {
                sums.add_slots(name, &slots);
                let nodes = observed.nodes.as_deref();
                nodes.into_iter().for_each(|nodes| sums.violations.add(&service, &slots, nodes));
                sums.add_spec(&spec);
                sums.suspects.extend(step.suspects);
                return unreadable.map_or(Ok(SeenService { has_acted, needs_pass, ..step.seen }), Err);
            }
        }
        Ok(SeenService::default())
    }

    fn is_live_global(service: &Service) -> bool {
        service.is_global() && service.state == ServiceState::Active
    }

    /// Returns true if slots have changed.
    async fn list_again(
        &self,
        service: &Service,
        slots: &[ReplicaSlot],
        observed: &ObservedState,
        sums: &mut PassSums,
    ) -> Result<bool, StoreError> {
        // Without the container sets it is unknown which pods run.
        let has_freed = observed.container_sets.is_some() && free_void(&self.store, service, slots).await?;
        Ok(unlisted::restore(&self.store, service, slots, observed, sums).await? || has_freed)
    }

    async fn with_nodes_of(
        &self,
        slots: &[ReplicaSlot],
        observed: &ObservedState,
    ) -> Result<ObservedState, StoreError> {
        let names: BTreeSet<&NodeName> = slots.iter().filter_map(|slot| slot.pod()?.node.as_ref()).collect();
        let names: Vec<NodeName> = names.into_iter().cloned().collect();
        let nodes = self.store.nodes(&names).await?.found();
        Ok(ObservedState {
            with_machine_ports: Some(with_machine_ports(&nodes)),
            nodes: Some(Arc::new(SeenNodes::of(&nodes))),
            ..observed.clone()
        })
    }

    async fn take_step(
        &self,
        service: &Service,
        slots: &[ReplicaSlot],
        observed: &ObservedState,
        back: HeldBack,
    ) -> Result<PlannedStep, StoreError> {
        let mut plan = plan(service, slots, observed);
        plan.create.retain(|replica| !back.replicas.contains(replica));
        if preparing::is_needed(&plan) {
            let found = preparing::look(&self.store, service, &plan, self.dead_after, observed.now).await?;
            preparing::hold_back(service, &mut plan, &found, observed.now);
        }
        let has_acted = !plan.is_complete();
        let needs_another = has_acted && carry_out(&self.store, service, &plan).await?;
        plan.held = back.why.or(plan.held);
        note_held(&self.store, service, &plan).await?;
        let seen = SeenService {
            is_replacing: is_replacing(service, slots) || ordinals::are_waiting(service, slots),
            has_acted,
            look_again_in: back.look_again_in,
            needs_pass: false,
        };
        Ok(PlannedStep { seen, needs_another, suspects: plan.requeue })
    }

    async fn take_job_step(
        &self,
        service: &mut Service,
        policy: &JobPolicy,
        slots: &[ReplicaSlot],
        observed: &ObservedState,
        back: &HeldBack,
    ) -> Result<PlannedStep, StoreError> {
        let mut indices = self.store.job_indices(&service.name).await?;
        settle_job_times(&self.store, service, &mut indices, observed.now).await?;
        let state = JobState { service, policy, slots, indices: &indices, observed };
        let mut plan = job::plan(&state);
        plan.start.retain(|index| !back.replicas.contains(index));
        let has_acted = !plan.is_complete();
        let needs_another = has_acted && carry_out_job(&self.store, service, &plan).await?;
        let look_again_in = look_again_in(&plan, needs_another, observed.now);
        let look_again_in = [look_again_in, back.look_again_in].into_iter().flatten().min();
        let seen = SeenService { has_acted, look_again_in, ..SeenService::default() };
        Ok(PlannedStep { seen, needs_another, suspects: plan.pods.requeue })
    }

    async fn list_services_of_pods(
        &self,
        services: &mut Vec<ServiceName>,
        observed: &ObservedState,
    ) -> Result<(), StoreError> {
        let listed: HashSet<&ServiceName> = services.iter().collect();
        let unlisted: Vec<_> =
            observed.on_nodes.keys().flatten().filter(|name| !listed.contains(name)).collect();
        let mut again = Vec::new();
        for name in unlisted {
            if self.store.list_service_again(name).await? {
                tracing::error!(service = %name, "the service was missing from `services`; it is listed again");
                again.push(name.clone());
            }
        }
        services.extend(again);
        Ok(())
    }

    /// Returns errors that concern all services; logs others once.
    fn handle_result(
        &mut self,
        name: &ServiceName,
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match result {
            Ok(()) => drop(self.broken.remove(name)),
            // A growing service must not keep others from shrinking.
            Err(error) if error.is_out_of_memory() => {
                if self.broken.insert(name.clone()) {
                    tracing::error!(
                        service = %name,
                        "missing pods are not created, because Redis uses all of its maxmemory: {error}; \
                         delete or scale down services, or raise maxmemory; retrying every {:?}",
                        self.full_pass_interval
                    );
                }
            }
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                if self.broken.insert(name.clone()) {
                    tracing::error!(
                        service = %name,
                        "the service cannot be fully reconciled: {error}; fix the key, retrying every {:?}",
                        self.full_pass_interval
                    );
                }
            }
        }
        Ok(())
    }

    /// If a key that all of these objects need is broken, logs that once and returns none of them.
    fn or_logged<T>(
        &mut self,
        what: &'static str,
        read: Result<Vec<T>, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        match read {
            Err(error) if !error.is_transient() => {
                if self.broken_indexes.insert(what) {
                    tracing::error!("{what} cannot be reconciled: {error}; fix the key");
                }
                Ok(Vec::new())
            }
            read => {
                if read.is_ok() {
                    self.broken_indexes.remove(what);
                }
                read
            }
        }
    }

    /// A pushed pod is desired until stopped, and never created anew.
    async fn reconcile_pushed_pods(
        &self,
        observed: &ObservedState,
        sums: &mut PassSums,
    ) -> Result<(), StoreError> {
        let ids = self.store.pushed_pods().await?;
        let records = self.store.pods(&ids).await?;
        sums.is_incomplete |= records.iter().any(Result::is_err);
        let is_over = |pod: &PodRecord| {
            let age = observed.now.saturating_sub(pod.since);
            matches!(pod.phase, Phase::Succeeded | Phase::Failed)
                && age >= ENDED_POD_RETENTION.as_millis() as u64
        };
        let over: Vec<_> = ids
            .iter()
            .zip(records.iter())
            .filter(|(_, record)| match record {
                // A service's pod, listed by another program.
                Ok(record) => record.as_ref().is_none_or(|pod| pod.service.is_some() || is_over(pod)),
                Err(_) => false,
            })
            .map(|(id, _)| id.clone())
            .collect();
        self.store.forget_pushed(&over, ENDED_POD_RETENTION).await?;
        unlisted::restore_pushed(&self.store, &ids, observed, sums).await?;
        let pods = records.found().into_iter();
        let pods: Vec<PodRecord> = pods.filter(|pod| pod.service.is_none()).collect();
        let stop_again: Vec<_> = pods
            .iter()
            .filter(|pod| {
                pod.phase == Phase::Stopped || (pod.phase == Phase::Stopping && observed.is_settled(pod))
            })
            .map(|pod| (pod.id.clone(), pod.node.clone()))
            .collect();
        match self.store.stop_pods(None, &stop_again, "Stopping", STOPPED_AGAIN).await {
            Err(error) if !error.is_transient() => {
                tracing::debug!("not all pushed pods can be stopped again: {error}");
            }
            outcomes => drop(outcomes?),
        }
        pods.iter().for_each(|pod| sums.add(pod));
        sums.suspects.extend(pods.into_iter().filter(|pod| may_have_lost_payload(pod, observed)));
        Ok(())
    }

    /// They keep running: the service was lost by accident.
    async fn count_pods_of_unknown_services(
        &mut self,
        observed: &ObservedState,
        sums: &mut PassSums,
    ) -> Result<(), StoreError> {
        let unknown = unlisted::of_unknown_services(&self.store, observed, sums).await?;
        for name in unknown.difference(&self.unknown_services) {
            tracing::error!(
                service = %name,
                "pods of this service run, but it has no record, although no command deleted it; \
                 its pods are kept: create the service again, or stop them with `kubeleet pod stop`"
            );
        }
        self.unknown_services = unknown;
        Ok(())
    }

    async fn expire_specs(&self, former: &FormerSpecs, sums: &PassSums) -> Result<(), StoreError> {
        let unused: Vec<SpecId> = former.ids.iter().filter(|spec| !sums.uses(spec)).cloned().collect();
        self.store.expire_specs(former, &unused).await?;
        Ok(())
    }

    /// Corrects a drift that was the same in two passes.
    async fn correct_usage(&mut self, usage: &[NodeUsage], sums: &PassSums) -> Result<(), StoreError> {
        let mut drifts = HashMap::new();
        for node in usage {
            let Some(drift) = sums.drift(node) else { continue };
            let key = (node.name.clone(), node.incarnation.clone());
            if self.drifts.get(&key) == Some(&drift)
                && self.store.correct_usage(node, &sums.used(&node.name), &drift.held).await?
            {
                tracing::warn!(node = %node.name, "corrected the resources of its pods, by {drift:?}");
            } else {
                drifts.insert(key, drift);
            }
        }
        self.drifts = drifts;
        Ok(())
    }

    /// Searches for as many as Redis can bear, at random: each pass searches for others.
    async fn restore_lost_payloads(
        &mut self,
        mut suspects: Vec<PodRecord>,
        queue_length: u64,
    ) -> Result<(), StoreError> {
        if suspects.is_empty() {
            return Ok(());
        }
        let max = (MAX_COMPARISONS / (queue_length + 1)).clamp(MIN_SEARCHES, MAX_SEARCHES) as usize;
        if suspects.len() > max {
            let (chosen, _) = suspects.partial_shuffle(&mut rand::rng(), max);
            suspects = chosen.to_vec();
        }
        let schedulers = self.store.schedulers().await;
        let schedulers = self.or_logged("lost payloads", schedulers)?;
        let schedulers: Vec<SchedulerId> = schedulers.into_iter().map(|(id, _)| id).collect();
        let requeued = requeue(&self.store, suspects, &schedulers).await?;
        if requeued > 0 {
            tracing::warn!("requeued {requeued} pods: their payloads were missing from all queues");
        }
        Ok(())
    }
}

/// `None` if a key is broken.
fn payloads(read: Result<Vec<Bytes>, StoreError>) -> Result<Option<Vec<Payload>>, StoreError> {
    match read {
        Ok(raw) => Ok(Some(raw.into_iter().filter_map(|raw| Payload::parse(raw).ok()).collect())),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}

fn with_machine_ports(nodes: &[Node]) -> HashSet<NodeName> {
    let has_them = |node: &&Node| NodeInfo::runtime_has_machine_ports(&node.facts.runtime);
    nodes.iter().filter(has_them).map(|node| node.name.clone()).collect()
}

/// Unfinished work is retried soon.
fn look_again_in(plan: &JobPlan, needs_another: bool, now: RedisMillis) -> Option<Duration> {
    if needs_another || !plan.is_complete() {
        return Some(UNFINISHED_JOB_INTERVAL);
    }
    Some(Duration::from_millis(plan.look_at?.saturating_sub(now)))
}

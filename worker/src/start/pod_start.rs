//! One start: from a claimed payload to a running and acknowledged container, or to the reason of a failure.
//!
//! A waiting start returns its permit and leaves its payload in the in-flight list (`rq`). Whenever something
//! may have changed (a stop, a move, another Redis master), Redis is asked again first.

use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::Backoff;
use engine::{Container, ContainerState, RuntimeError};
use model::ids::AssignmentId;
use model::spec::HostPorts;
use store::{Ack, AckItem, Claim, ClaimReply, PodRef, RejectedPod, StatusReport, WriteOutcome};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::running::remove::{Why, remove};
use crate::running::step::DesiredState;
use crate::running::table::{ManagedPod, StartCheck};
use crate::session::broken_records::UNUSABLE_FIELDS;
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::start::admission::{self, AdmittedJob, StartGuard, StartJob};
use crate::start::dependency_gate::{POLL_INTERVAL as POLL_DEPENDENCIES, WAITING};
use crate::start::files_unavailable::FilesUnavailable;
use crate::start::first_containers::{self, Interrupted};
use crate::start::node_fault::is_node_fault;
use crate::start::pod_images::{self, ImagesUnavailable};
use crate::start::resource_ids::{self, IdsObstacle};
use crate::start::volume_claims::{self, VolumeObstacle};
use crate::support::measure;
use crate::support::text::seconds;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Attempts of a pod that fails because of its node, or whose host port is taken.
const MAX_NODE_FAILURES: u32 = 3;

const HOST_PORT_TAKEN: &str = "HostPortTaken";
const VOLUME_ELSEWHERE: &str = "VolumeElsewhere";
const RESOURCE_LOST: &str = "ResourceLost";

/// The creation of a secret or config wakes no worker.
const MAX_FILES_WAIT: Duration = Duration::from_secs(10);

enum StartPhase {
    Done,
    Claim,
    Stop,
    Attempt(AssignmentId),
    Wait(AssignmentId, Obstacle),
    /// The schedulers choose another node.
    GiveBack(AssignmentId, &'static str, String),
    Reject(String),
    /// It has no record.
    RejectUnknown(String),
}

enum Obstacle {
    Pod(&'static str, String),
    Files(FilesUnavailable),
    /// `None` if Redis does not answer.
    Services(Option<String>),
    Engine,
}

struct PodStart {
    context: Arc<SessionContext>,
    job: StartJob,
    guard: StartGuard,
    permit: Option<OwnedSemaphorePermit>,
    node_failures: u32,
    has_dependencies: bool,
    reported_missing: String,
    pod_backoff: Backoff,
    engine_backoff: Backoff,
    redis_backoff: Backoff,
}

pub(crate) async fn run(context: Arc<SessionContext>, admitted: AdmittedJob, claim: Claim) {
    let AdmittedJob { job, guard, permit } = admitted;
    let timings = &context.worker.timings;
    let first_engine_wait = Duration::from_secs(1).min(timings.start_retry);
    let start = PodStart {
        pod_backoff: Backoff::new(timings.start_retry, timings.max_backoff),
        engine_backoff: Backoff::new(first_engine_wait, Duration::from_secs(10)),
        redis_backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
        node_failures: 0,
        has_dependencies: false,
        reported_missing: String::new(),
        context,
        job,
        guard,
        permit: Some(permit),
    };
    start.run(claim).await;
}

impl PodStart {
    async fn run(mut self, claim: Claim) {
        let stopping = self.context.tasks.stopping().clone();
        let mut phase = self.after_claim(claim);
        loop {
            phase = match phase {
                StartPhase::Done => return,
                StartPhase::Stop => {
                    let context = self.context.clone();
                    // A pod that is starting is not managed, and so not stopped, by the next pass.
                    drop(self);
                    return context.wakeups.request_full_reconcile();
                }
                StartPhase::Reject(reason) => {
                    return self.reject(RejectedPod::Known(&self.job.payload.id), &reason).await;
                }
                StartPhase::RejectUnknown(reason) => {
                    return self.reject(RejectedPod::WithoutRecord(&self.job.payload.id), &reason).await;
                }
                // The payload stays in the in-flight list for the next session.
                StartPhase::Claim
                | StartPhase::Attempt(_)
                | StartPhase::Wait(..)
                | StartPhase::GiveBack(..)
                    if stopping.is_cancelled() =>
                {
                    return;
                }
                StartPhase::Claim => self.claim().await,
                StartPhase::Attempt(assignment) => self.attempt(assignment).await,
                StartPhase::Wait(assignment, obstacle) => self.wait(assignment, obstacle).await,
                StartPhase::GiveBack(assignment, reason, message) => {
                    self.give_back(assignment, reason, message).await
                }
            };
        }
    }

    fn after_claim(&self, claim: Claim) -> StartPhase {
        let node = &self.context.worker.node;
        match claim {
            Claim::Start { assignment, .. } => self.check_policy(assignment),
            Claim::Running | Claim::Gone => StartPhase::Done,
            Claim::BrokenRecord => StartPhase::Reject(
                "its record in Redis is broken; repair or delete the key of the pod, then requeue this"
                    .to_owned(),
            ),
            Claim::Stopping => StartPhase::Stop,
            Claim::Stale => {
                self.context.wakeups.request_reconcile();
                StartPhase::Done
            }
            Claim::Exhausted { attempt } => StartPhase::Reject(format!(
                "{node} began to start it {} times and it never ran; see the pod's events and the log of \
                 {node}",
                attempt.saturating_sub(1)
            )),
            Claim::UnknownService => StartPhase::RejectUnknown(
                "it names a specification of a service that does not know this pod: pods of a service are \
                 created by the API; to push a pod by hand, leave out `spec`"
                    .to_owned(),
            ),
        }
    }

    async fn reject(&self, pod: RejectedPod<'_>, reason: &str) {
        admission::reject(&self.context, &self.job.payload.raw, pod, reason).await;
    }

    /// Only now: a stale copy of a payload is dropped, not rejected.
    fn check_policy(&self, assignment: AssignmentId) -> StartPhase {
        let Some(spec) = &self.job.spec else {
            return StartPhase::Reject(format!(
                "its specification {:?} is not in Redis; pods of a service are created by the API",
                self.job.payload.spec
            ));
        };
        match self.context.worker.policy.refusal(spec) {
            Some(reason) => StartPhase::Reject(reason),
            None => StartPhase::Attempt(assignment),
        }
    }

    async fn claim(&mut self) -> StartPhase {
        // A wait only counts as no attempt if it is reported, and the assignment may be another one.
        self.reported_missing.clear();
        let reply = admission::claim(&self.context, std::iter::once(&self.job)).await;
        match self.context.classify("claiming a pod", reply) {
            ReplyClass::Reply(ClaimReply::Claims(claims)) => {
                self.redis_backoff.reset();
                claims.into_iter().next().map_or(StartPhase::Done, |claim| self.after_claim(claim))
            }
            ReplyClass::Reply(ClaimReply::Paused(remaining)) => {
                self.permit = None;
                self.sleep(remaining).await;
                StartPhase::Claim
            }
            ReplyClass::Transient(_) => {
                self.permit = None;
                let wait = self.redis_backoff.next_exact();
                self.sleep(wait).await;
                StartPhase::Claim
            }
            // The sweep finds the payload, and handles a broken record.
            ReplyClass::Fenced | ReplyClass::Permanent(_) => StartPhase::Done,
        }
    }

    async fn attempt(&mut self, assignment: AssignmentId) -> StartPhase {
        let Some(spec) = self.job.spec.clone() else { return StartPhase::Done };
        self.context.table.set_start_assignment(&self.job.payload.id, &assignment);
        if !self.wait_for_turn(&assignment).await {
            return StartPhase::Claim;
        }
        let worker = self.context.worker.clone();
        if spec.containers.is_empty() {
            return StartPhase::Reject("its specification has no container".to_owned());
        }
        if let Err(obstacle) = self.check_dependencies().await {
            return StartPhase::Wait(assignment, obstacle);
        }
        let begun = Instant::now();
        let images = tokio::select! {
            () = self.guard.recheck.notified() => return StartPhase::Claim,
            () = self.context.tasks.stopping().cancelled() => return StartPhase::Done,
            images = pod_images::ensure(&self.context, &self.job, &assignment, &spec) => images,
        };
        let spec = match images {
            Ok(spec) => spec,
            Err(ImagesUnavailable::Failed { error, image }) => {
                return self.after_failure(assignment, error, &image);
            }
            Err(ImagesUnavailable::Ask) => return StartPhase::Claim,
            Err(ImagesUnavailable::Fenced) => return StartPhase::Done,
        };
        let StartJob { payload, service, .. } = &self.job;
        let mut managed = ManagedPod::new(payload.clone(), service.clone(), assignment, spec);
        match volume_claims::check(&self.context, &mut managed).await {
            Ok(()) => {}
            Err(VolumeObstacle::Waits(unavailable)) => {
                measure::start("volumes");
                return StartPhase::Wait(managed.assignment, Obstacle::Files(unavailable));
            }
            Err(VolumeObstacle::Elsewhere(message)) => {
                return StartPhase::GiveBack(managed.assignment, VOLUME_ELSEWHERE, message);
            }
            Err(VolumeObstacle::Engine(error)) => return self.after_failure(managed.assignment, error, ""),
            Err(VolumeObstacle::Redis) => return StartPhase::Claim,
            Err(VolumeObstacle::Fenced) => return StartPhase::Done,
        }
        match resource_ids::check(&self.context, &mut managed).await {
            Ok(()) => {}
            Err(IdsObstacle::Busy(message)) => {
                measure::start("resources");
                return self.try_again_or_give_back(managed.assignment, "ResourceBusy", message);
            }
            Err(IdsObstacle::Lost(message)) => {
                return StartPhase::GiveBack(managed.assignment, RESOURCE_LOST, message);
            }
            Err(IdsObstacle::Engine(error)) => return self.after_failure(managed.assignment, error, ""),
            Err(IdsObstacle::Redis) => return StartPhase::Claim,
        }
        match first_containers::start(&worker, &mut managed).await {
            Ok(containers) => {
                measure::start_took(begun.elapsed());
                if managed.spec.containers.iter().any(|container| !container.volumes.is_empty()) {
                    self.context.wakeups.request_volumes();
                }
                self.acknowledge(managed, containers).await
            }
            Err(Interrupted::NoLease) => StartPhase::Claim,
            Err(Interrupted::NoFiles(unavailable)) => {
                measure::start("files");
                StartPhase::Wait(managed.assignment, Obstacle::Files(unavailable))
            }
            Err(Interrupted::Failed { error, image }) => {
                self.after_failure(managed.assignment, error, &image)
            }
        }
    }

    async fn check_dependencies(&mut self) -> Result<(), Obstacle> {
        let Some(service) = self.job.service.as_ref().filter(|_| !self.has_dependencies) else {
            return Ok(());
        };
        let worker = &self.context.worker;
        let dead_after = worker.config.timing.dead_after;
        match self.context.dependencies.obstacle(&worker.store, dead_after, service).await {
            Ok(None) => {
                self.has_dependencies = true;
                Ok(())
            }
            Ok(Some(missing)) => {
                measure::start("dependencies");
                Err(Obstacle::Services(Some(missing)))
            }
            Err(error) => {
                self.context.worker.redis_log.failed(&error);
                Err(Obstacle::Services(None))
            }
        }
    }

    /// False if Redis must be asked first. Same below.
    async fn wait_for_turn(&mut self, assignment: &AssignmentId) -> bool {
        let pod = self.job.payload.id.clone();
        let mut has_requested_reconcile = false;
        let mut was_busy = false;
        loop {
            if self.context.worker.is_leased() {
                match self.context.table.can_start(&pod, assignment) {
                    StartCheck::Free => break,
                    StartCheck::Occupied => {}
                    StartCheck::Busy => was_busy = true,
                }
            }
            if !has_requested_reconcile {
                has_requested_reconcile = true;
                self.context.wakeups.request_reconcile();
            }
            self.permit = None;
            if !self.sleep(POLL_INTERVAL).await {
                return false;
            }
        }
        if was_busy {
            // The action may have changed the assignment.
            return false;
        }
        if self.permit.is_none() {
            let permit = tokio::select! {
                () = self.guard.recheck.notified() => return false,
                () = self.context.tasks.stopping().cancelled() => return false,
                permit = self.context.start_permits.clone().acquire_owned() => permit,
            };
            self.permit = permit.ok();
        }
        true
    }

    fn after_failure(&mut self, assignment: AssignmentId, error: RuntimeError, image: &str) -> StartPhase {
        match error {
            RuntimeError::Image(reason) => {
                measure::start("image");
                let message = format!("pulling {image} failed: {reason}");
                if is_node_fault(&reason) {
                    return self.after_node_fault(assignment, "ImagePullBackOff", message);
                }
                StartPhase::Wait(assignment, Obstacle::Pod("ImagePullBackOff", message))
            }
            RuntimeError::Refused(reason) => {
                measure::start("refused");
                StartPhase::Reject(reason)
            }
            RuntimeError::NotFound(reason) | RuntimeError::Failed(reason) => {
                measure::start("failed");
                if is_node_fault(&reason) {
                    return self.after_node_fault(assignment, "StartFailed", reason);
                }
                StartPhase::Wait(assignment, Obstacle::Pod("StartFailed", reason))
            }
            RuntimeError::PortTaken(reason) => {
                measure::start("failed");
                self.try_again_or_give_back(assignment, HOST_PORT_TAKEN, reason)
            }
            RuntimeError::Engine(reason) => {
                let pod = &self.job.payload.id;
                tracing::warn!(%pod, error = reason, "the engine did not answer to a start; retrying");
                measure::start("engine");
                // A heartbeat also pings the engine.
                self.context.wakeups.request_heartbeat();
                StartPhase::Wait(assignment, Obstacle::Engine)
            }
        }
    }

    /// The schedulers know of the node's problem before the pod is given back.
    fn after_node_fault(
        &mut self,
        assignment: AssignmentId,
        reason: &'static str,
        message: String,
    ) -> StartPhase {
        measure::start("node");
        self.context.worker.engine.record_start_failure(&message);
        self.context.wakeups.request_heartbeat();
        self.try_again_or_give_back(assignment, reason, message)
    }

    fn try_again_or_give_back(
        &mut self,
        assignment: AssignmentId,
        reason: &'static str,
        message: String,
    ) -> StartPhase {
        self.node_failures += 1;
        match self.node_failures < MAX_NODE_FAILURES {
            true => StartPhase::Wait(assignment, Obstacle::Pod(reason, message)),
            false => StartPhase::GiveBack(assignment, reason, message),
        }
    }

    /// After a lost reply the claim finds out.
    async fn give_back(
        &mut self,
        assignment: AssignmentId,
        word: &'static str,
        reason: String,
    ) -> StartPhase {
        let worker = &self.context.worker;
        let Some(spec) = &self.job.spec else { return StartPhase::Done };
        let taken = match word {
            HOST_PORT_TAKEN => ports_named_in(&spec.host_ports(), &reason),
            _ => HostPorts::default(),
        };
        let message = match word {
            VOLUME_ELSEWHERE | RESOURCE_LOST => reason.clone(),
            _ => format!("{} could not start it {MAX_NODE_FAILURES} times: {reason}", worker.node),
        };
        tracing::warn!(node = %worker.node, pod = %self.job.payload.id, message, "returning the pod to the schedulers");
        let pod = PodRef { id: &self.job.payload.id, assignment: &assignment };
        let reply = self.context.session.give_back(pod, &self.job.payload.raw, &taken, word, &message).await;
        match self.context.classify("giving a pod back", reply) {
            ReplyClass::Reply(WriteOutcome::Done) | ReplyClass::Fenced => StartPhase::Done,
            ReplyClass::Reply(WriteOutcome::Stale | WriteOutcome::Wanted) => StartPhase::Claim,
            ReplyClass::Transient(_) | ReplyClass::Permanent(_) => {
                StartPhase::Wait(assignment, Obstacle::Pod(word, reason))
            }
        }
    }

    async fn wait(&mut self, assignment: AssignmentId, obstacle: Obstacle) -> StartPhase {
        self.permit = None;
        let (reason, message, most) = match obstacle {
            Obstacle::Pod(reason, message) => (reason, message, Duration::MAX),
            Obstacle::Files(FilesUnavailable { reason, message }) => (reason, message, MAX_FILES_WAIT),
            Obstacle::Engine => return after_wait(assignment, self.wait_for_engine().await),
            Obstacle::Services(missing) => return self.wait_for_services(assignment, missing).await,
        };
        let wait = self.pod_backoff.next_exact().min(most);
        let message = format!("{message}; retrying in {}", seconds(wait));
        tracing::warn!(pod = %self.job.payload.id, reason, message, "the pod cannot be started yet");
        if !self.report(&assignment, reason, &message).await {
            return StartPhase::Done;
        }
        after_wait(assignment, self.sleep(wait).await)
    }

    /// Reports missing services once.
    async fn wait_for_services(&mut self, assignment: AssignmentId, missing: Option<String>) -> StartPhase {
        if let Some(missing) = missing.filter(|missing| *missing != self.reported_missing) {
            tracing::info!(pod = %self.job.payload.id, missing, "the pod is not started yet");
            if !self.report(&assignment, WAITING, &missing).await {
                return StartPhase::Done;
            }
            self.reported_missing = missing;
        }
        after_wait(assignment, self.sleep(POLL_DEPENDENCIES).await)
    }

    async fn wait_for_engine(&mut self) -> bool {
        let wait = self.engine_backoff.next_exact();
        if !self.sleep(wait).await {
            return false;
        }
        while self.context.worker.engine.problem().is_some() {
            if !self.sleep(POLL_INTERVAL).await {
                return false;
            }
        }
        true
    }

    async fn report(&self, assignment: &AssignmentId, reason: &str, message: &str) -> bool {
        let pod = PodRef { id: &self.job.payload.id, assignment };
        let status = StatusReport { reason, message, ..StatusReport::default() };
        let reply = self.context.session.report(pod, &status).await;
        // A pod that must stop is `Stale` here; the claim handles it.
        !matches!(self.context.classify("reporting the status of a pod", reply), ReplyClass::Fenced)
    }

    async fn sleep(&self, wait: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = self.guard.recheck.notified() => false,
            () = self.context.tasks.stopping().cancelled() => false,
        }
    }

    async fn acknowledge(&mut self, managed: ManagedPod, containers: Vec<Container>) -> StartPhase {
        let pod = managed.payload.id.clone();
        let item = AckItem {
            payload: managed.payload.clone(),
            assignment: managed.assignment.clone(),
            network: managed.network.clone(),
            starting: managed.what_it_waits_for().unwrap_or_default(),
        };
        let Some(ack) = self.context.acks.acknowledge(item).await else { return StartPhase::Done };
        match ack {
            Ack::Running | Ack::Stop => self.manage(managed, containers, ack),
            Ack::BrokenRecord => self.context.broken_records.note(&pod, UNUSABLE_FIELDS),
            Ack::Stale => {
                containers.into_iter().for_each(|found| remove(&self.context, found, Why::AssignedAnew))
            }
        }
        StartPhase::Done
    }

    fn manage(&self, mut managed: ManagedPod, containers: Vec<Container>, ack: Ack) {
        measure::start("ok");
        let (node, payload) = (&self.context.worker.node, managed.payload.clone());
        tracing::info!(%node, pod = %payload.id, name = %payload.name, "pod started");
        if ack == Ack::Stop {
            managed.desired = DesiredState::Stop;
        }
        let is_complete = managed.is_reported;
        let desired = self.context.table.insert_started(managed);
        for container in containers.into_iter().filter(|found| found.state != ContainerState::Running) {
            self.context.doubted.insert(payload.id.clone(), container.handle);
        }
        let is_doubted = self.context.doubted.contains(&payload.id);
        if desired != DesiredState::Run || is_doubted || !is_complete {
            self.context.wakeups.request_reconcile();
        }
    }
}

fn after_wait(assignment: AssignmentId, is_over: bool) -> StartPhase {
    if is_over { StartPhase::Attempt(assignment) } else { StartPhase::Claim }
}

fn ports_named_in(ports: &HostPorts, message: &str) -> HostPorts {
    let numbers: Vec<&str> = message.split(|c: char| !c.is_ascii_digit()).collect();
    let is_named = |port: &&str| port.split_once('/').is_some_and(|(number, _)| numbers.contains(&number));
    let named: Vec<&str> = ports.iter().filter(is_named).collect();
    if named.is_empty() { ports.clone() } else { HostPorts::from_text(named.join(" ")) }
}

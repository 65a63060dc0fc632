//! One start: from a payload in rq to a container that runs and is acknowledged, or to a reason why not.
//!
//! Only one start at a time works on a pod. A start that has to wait gives back its permit, so that one image that can
//! not be had holds up nobody; its payload stays in rq. Whenever something may have changed (the pod is to be stopped,
//! it may have moved, Redis has another master) Redis is asked again before anything else is done.

use std::sync::Arc;
use std::time::Duration;

use common::ids::AssignmentId;
use common::spec::PodSpec;
use common::store::{Ack, AckItem, Claim, ClaimReply, PodRef, StatusReport};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::ack::acknowledge;
use crate::backoff::Backoff;
use crate::claim::{self, InHand, Job, Place};
use crate::life::{Heard, Life};
use crate::remove;
use crate::runtime::{Container, ContainerRequest, ContainerState, Identity, RuntimeError};
use crate::step::Wish;
use crate::table::{Held, Room, Rules};

/// How often a start that waits for something of this machine looks again.
const GLANCE: Duration = Duration::from_millis(100);

/// What comes after one step of a start.
enum Next {
    /// It is through, one way or the other.
    Done,
    /// Ask Redis what to do with the payload.
    Ask,
    /// Try to start it as this assignment.
    Try(AssignmentId),
    /// Wait, then try again.
    Wait(AssignmentId, Obstacle),
    /// It can not be a pod: to the dead letters.
    Reject(String),
}

/// What a start waits for.
enum Obstacle {
    /// The pod's own trouble, with its word and the engine's sentence.
    Pod(&'static str, String),
    /// The engine's trouble; the node's heartbeat tells it.
    Engine,
}

struct Start {
    life: Arc<Life>,
    job: Job,
    place: Place,
    permit: Option<OwnedSemaphorePermit>,
    /// How long this pod waits after a failure of its own.
    pod_backoff: Backoff,
    /// How long it waits after one of the engine.
    engine_backoff: Backoff,
    /// How long it waits when Redis is away.
    redis_backoff: Backoff,
}

/// Starts a pod, as what was claimed says.
pub(crate) async fn run(life: Arc<Life>, in_hand: InHand, claim: Claim) {
    let InHand { job, place, permit } = in_hand;
    let pace = &life.worker.pace;
    let start = Start {
        pod_backoff: Backoff::new(pace.start_retry, pace.longest),
        engine_backoff: Backoff::new(Duration::from_secs(1).min(pace.start_retry), Duration::from_secs(10)),
        redis_backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
        life,
        job,
        place,
        permit: Some(permit),
    };
    start.go(claim).await;
}

impl Start {
    async fn go(mut self, claim: Claim) {
        let quit = self.life.quit.clone();
        let mut next = self.decide(claim);
        loop {
            next = match next {
                Next::Done => return,
                Next::Reject(reason) => {
                    let payload = &self.job.payload;
                    return claim::reject(&self.life, &payload.raw, Some(payload), &reason).await;
                }
                // Whatever waits is in rq, and the next life takes it from there.
                Next::Ask | Next::Try(_) | Next::Wait(..) if quit.is_cancelled() => return,
                Next::Ask => self.ask().await,
                Next::Try(assignment) => self.attempt(assignment).await,
                Next::Wait(assignment, obstacle) => self.wait(assignment, obstacle).await,
            };
        }
    }

    fn decide(&self, claim: Claim) -> Next {
        let node = &self.life.worker.node;
        match claim {
            Claim::Start { assignment, .. } if self.job.spec.is_some() => Next::Try(assignment),
            Claim::Start { .. } => Next::Reject(format!(
                "its specification {:?} is not in Redis; pods of a service are made by the API",
                self.job.payload.spec
            )),
            Claim::Running | Claim::Gone => Next::Done,
            Claim::Stale | Claim::Stopped => {
                // Its container, if there is one, is nobody's now.
                self.life.look();
                Next::Done
            }
            Claim::Exhausted { attempt } => Next::Reject(format!(
                "{node} began to start it {} times and it never ran; see the events of the pod and the log of {node}",
                attempt.saturating_sub(1)
            )),
            Claim::Orphan => Next::Reject(
                "it names a specification of a service that does not know it: pods of a service are made by the API; \
                 to push a pod, leave out `spec`"
                    .to_owned(),
            ),
        }
    }

    async fn ask(&mut self) -> Next {
        let answer = claim::claim(&self.life, std::iter::once(&self.job)).await;
        match self.life.heard("claiming a pod", answer) {
            Heard::Answer(ClaimReply::Claims(claims)) => {
                self.redis_backoff.reset();
                claims.into_iter().next().map_or(Next::Done, |claim| self.decide(claim))
            }
            Heard::Answer(ClaimReply::Paused(left)) => {
                self.permit = None;
                self.sleep(left).await;
                Next::Ask
            }
            Heard::Again => {
                self.permit = None;
                let wait = self.redis_backoff.next();
                self.sleep(wait).await;
                Next::Ask
            }
            // The sweep finds it in rq, and deals with a record that somebody broke.
            Heard::Fenced | Heard::Hopeless => Next::Done,
        }
    }

    async fn attempt(&mut self, assignment: AssignmentId) -> Next {
        let Some(spec) = self.job.spec.clone() else { return Next::Done };
        self.life.table.starts_as(&self.job.payload.id, &assignment);
        if !self.is_free_to_start(&assignment).await {
            return Next::Ask;
        }
        let Some(request) = self.request(&spec, &assignment) else {
            return Next::Reject("its specification has no container".to_owned());
        };
        let begun = Instant::now();
        let image = tokio::select! {
            () = self.place.recheck.notified() => return Next::Ask,
            () = self.life.quit.cancelled() => return Next::Done,
            image = self.life.worker.runtime.ensure_image(&request.container.image) => image,
        };
        if let Err(error) = image {
            return self.failed(assignment, error);
        }
        // The image may have taken minutes: what was true before it may not be true any more.
        let worker = self.life.worker.clone();
        let Some(under_way) = worker.lease.start(worker.now()) else { return Next::Ask };
        let started = worker.runtime.run(&request).await;
        drop(under_way);
        match started {
            Ok(container) => {
                metrics::histogram!("kubeleet_pod_start_seconds").record(begun.elapsed().as_secs_f64());
                self.acknowledge(assignment, container, &spec).await
            }
            Err(error) => self.failed(assignment, error),
        }
    }

    /// Waits until this worker has a permit and a good lease and nothing else of the pod is in the way. False when Redis
    /// is to be asked first.
    async fn is_free_to_start(&mut self, assignment: &AssignmentId) -> bool {
        let pod = self.job.payload.id.clone();
        let (mut looked, mut was_busy) = (false, false);
        loop {
            if self.life.worker.is_leased() {
                match self.life.table.room_for(&pod, assignment) {
                    Room::Free => break,
                    Room::Taken => {}
                    Room::Busy => was_busy = true,
                }
            }
            if !std::mem::replace(&mut looked, true) {
                self.life.look();
            }
            self.permit = None;
            if !self.sleep(GLANCE).await {
                return false;
            }
        }
        if was_busy {
            // Redis may have been told that it was lost, and then it is another assignment now.
            return false;
        }
        if self.permit.is_none() {
            let permit = tokio::select! {
                () = self.place.recheck.notified() => return false,
                () = self.life.quit.cancelled() => return false,
                permit = self.life.permits.clone().acquire_owned() => permit,
            };
            self.permit = permit.ok();
        }
        true
    }

    fn request(&self, spec: &PodSpec, assignment: &AssignmentId) -> Option<ContainerRequest> {
        let payload = &self.job.payload;
        let identity = Identity {
            node: self.life.worker.node.clone(),
            pod: payload.id.clone(),
            name: payload.name.clone(),
            service: self.job.service.clone(),
            replica: payload.replica,
            assignment: assignment.clone(),
            on_disconnect: spec.on_disconnect,
            grace: spec.grace(),
        };
        Some(ContainerRequest { identity, container: spec.containers.first()?.clone() })
    }

    fn failed(&mut self, assignment: AssignmentId, error: RuntimeError) -> Next {
        let (result, next) = match error {
            RuntimeError::Image(words) => {
                ("image", Next::Wait(assignment, Obstacle::Pod("ImagePullBackOff", words)))
            }
            RuntimeError::Refused(words) => ("refused", Next::Reject(words)),
            RuntimeError::NotFound(words) | RuntimeError::Failed(words) => {
                ("failed", Next::Wait(assignment, Obstacle::Pod("StartFailed", words)))
            }
            RuntimeError::Engine(words) => {
                tracing::warn!(pod = %self.job.payload.id, error = words, "the engine did not answer to a start");
                // A beat pings: whether it was this one call or the engine is for the ping to say.
                self.life.beat_now.notify_one();
                ("engine", Next::Wait(assignment, Obstacle::Engine))
            }
        };
        metrics::counter!("kubeleet_pod_starts_total", "result" => result).increment(1);
        next
    }

    async fn wait(&mut self, assignment: AssignmentId, obstacle: Obstacle) -> Next {
        self.permit = None;
        let free = match obstacle {
            Obstacle::Pod(reason, message) => {
                tracing::warn!(pod = %self.job.payload.id, reason, message, "can not be started yet");
                if !self.report(&assignment, reason, &message).await {
                    return Next::Done;
                }
                let wait = self.pod_backoff.next();
                self.sleep(wait).await
            }
            Obstacle::Engine => self.wait_for_engine().await,
        };
        if free { Next::Try(assignment) } else { Next::Ask }
    }

    /// Until the engine answers pings again, and a moment more.
    async fn wait_for_engine(&mut self) -> bool {
        let wait = self.engine_backoff.next();
        if !self.sleep(wait).await {
            return false;
        }
        while self.life.worker.engine.problem().is_some() {
            if !self.sleep(GLANCE).await {
                return false;
            }
        }
        true
    }

    /// False when the pod is not this node's any more.
    async fn report(&self, assignment: &AssignmentId, reason: &str, message: &str) -> bool {
        let pod = PodRef { id: &self.job.payload.id, assignment };
        let status = StatusReport { reason, message, ..StatusReport::default() };
        let answer = self.life.session.report(pod, &status).await;
        // Redis may be away: what matters is tried again anyway. A pod that is to be stopped is Stale here as well, and
        // is asked about after the wait.
        !matches!(self.life.heard("reporting on a pod", answer), Heard::Fenced)
    }

    /// False when it was woken because Redis is to be asked again.
    async fn sleep(&self, wait: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = self.place.recheck.notified() => false,
            () = self.life.quit.cancelled() => false,
        }
    }

    async fn acknowledge(&mut self, assignment: AssignmentId, container: Container, spec: &PodSpec) -> Next {
        let payload = self.job.payload.clone();
        let item = AckItem {
            payload: payload.clone(),
            assignment: assignment.clone(),
            address: container.address.clone(),
        };
        let Some(ack) = acknowledge(&self.life, item).await else { return Next::Done };
        match ack {
            Ack::Running | Ack::Stop => {
                metrics::counter!("kubeleet_pod_starts_total", "result" => "ok").increment(1);
                tracing::info!(node = %self.life.worker.node, pod = %payload.id, name = %payload.name, "runs");
                let mut held = Held::new(payload, self.job.service.clone(), assignment, Rules::of(spec));
                held.up_since = Some(self.life.worker.now());
                if ack == Ack::Stop {
                    held.wish = Wish::Stop;
                }
                let wish = self.life.table.hold_started(held);
                if wish != Wish::Run || container.state != ContainerState::Running {
                    self.life.look();
                }
            }
            Ack::Stale => remove::remove(&self.life, container),
        }
        Next::Done
    }
}

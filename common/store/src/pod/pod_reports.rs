//! Reports of a worker on its pods: status and end.

use crate::keys;
use crate::node::session::{Fenced, Session, SessionResult};
use crate::pod::dead_letters::{RejectedPod, TakenBy};
use crate::reply::{unexpected, verdict, word};
use crate::scripts::{Call, finish, give_back, lost, note_images, report};
use model::ids::{AssignmentId, PodId, ServiceName, SpecId};
use model::network::{ContainerNetwork, ports_to_json};
use model::pod::image::{self, ImageContent};
use model::pod::payload::Payload;
use model::pod::{ContainerStatus, EndedRun};
use model::spec::HostPorts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodOutcome {
    Stopped,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub struct PodRef<'a> {
    pub id: &'a PodId,
    pub assignment: &'a AssignmentId,
}

fn service_of(payload: &[u8]) -> Option<ServiceName> {
    Payload::parse(payload.to_vec().into()).ok()?.service()
}

#[derive(Debug, Clone)]
pub struct FinishReport<'a> {
    pub outcome: PodOutcome,
    /// One word.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
    pub exit_code: Option<i64>,
    pub containers: &'a [ContainerStatus],
    /// Runs that were not reported yet.
    pub runs: &'a [EndedRun],
    /// Requests in flight before the stop, and how they ended.
    pub drained: &'a str,
}

impl FinishReport<'_> {
    pub fn new(outcome: PodOutcome) -> Self {
        Self { outcome, reason: "", message: "", exit_code: None, containers: &[], runs: &[], drained: "" }
    }
}

#[derive(Debug, Clone, Default)]
pub struct StatusReport<'a> {
    /// Not needed for a pod that does not run yet.
    pub service: Option<&'a ServiceName>,
    /// One word; empty if healthy.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
    pub restarts: Option<u32>,
    pub exit_code: Option<i64>,
    /// `None` if unchanged.
    pub network: Option<&'a ContainerNetwork>,
    pub containers: &'a [ContainerStatus],
    /// Repeated reports add none twice.
    pub runs: &'a [EndedRun],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Stale,
    /// No stop was requested.
    Wanted,
}

/// Redis itself makes a dead letter of a larger payload. As in `_prelude.lua`.
const GIANT: usize = 512 * 1024;

fn containers_field(containers: &[ContainerStatus]) -> String {
    if containers.is_empty() { String::new() } else { crate::json::to_json(&containers) }
}

fn kept_runs(containers: &[ContainerStatus]) -> usize {
    EndedRun::KEPT * containers.len().max(1)
}

/// Writes a line per run: its id and JSON, which has no line breaks.
fn runs_field(runs: &[EndedRun]) -> String {
    let line = |run: &EndedRun| format!("{} {}\n", run.id, crate::json::to_json(run));
    runs.iter().map(line).collect()
}

impl Session {
    /// `payload` is as in cs (or rq).
    pub async fn finish(
        &self,
        pod: PodRef<'_>,
        payload: &[u8],
        service: Option<&ServiceName>,
        report: &FinishReport<'_>,
    ) -> SessionResult<WriteOutcome> {
        let [service_key, done, tries] = keys::counted_in(service);
        let finish = finish::Head {
            node_key: keys::node(&self.node),
            rq: keys::rq(&self.node),
            cs: keys::cs(&self.node),
            stop_set: keys::stop(&self.node),
            wanted_key: keys::wanted(service),
            pod_key: keys::pod(pod.id),
            ep_key: keys::endpoints_of(service),
            service_key,
            done,
            tries,
            node: &self.node,
            incarnation: &self.incarnation,
            uuid: pod.id,
            assignment: pod.assignment,
            payload,
            outcome: match report.outcome {
                PodOutcome::Stopped => "stopped",
                PodOutcome::Succeeded => "succeeded",
                PodOutcome::Failed => "failed",
            },
            reason: report.reason,
            message: report.message,
            exit_code: report.exit_code,
            containers: containers_field(report.containers),
            kept_runs: kept_runs(report.containers),
            runs: runs_field(report.runs),
            drained: report.drained,
        };
        self.write("finishing a pod", &finish.call()).await
    }

    /// Queues a running pod here as a new assignment.
    pub async fn report_lost(&self, pod: PodRef<'_>, payload: &[u8]) -> SessionResult<WriteOutcome> {
        let service = service_of(payload);
        let lost = lost::Head {
            node_key: keys::node(&self.node),
            cs: keys::cs(&self.node),
            pq: keys::pq(&self.node),
            pod_key: keys::pod(pod.id),
            ep_key: keys::endpoints_of(service.as_ref()),
            node: &self.node,
            incarnation: &self.incarnation,
            uuid: pod.id,
            assignment: pod.assignment,
            payload,
            new_assignment: AssignmentId::random(),
        };
        self.write("reporting a lost container", &lost.call()).await
    }

    /// `reason` is a word, `message` a sentence. If host ports are `taken`, schedulers avoid this node for a
    /// while.
    pub async fn give_back(
        &self,
        pod: PodRef<'_>,
        payload: &[u8],
        taken: &HostPorts,
        reason: &str,
        message: &str,
    ) -> SessionResult<WriteOutcome> {
        let give_back = give_back::Head {
            node_key: keys::node(&self.node),
            rq: keys::rq(&self.node),
            sq: keys::SQ,
            pod_key: keys::pod(pod.id),
            node: &self.node,
            incarnation: &self.incarnation,
            uuid: pod.id,
            assignment: pod.assignment,
            payload,
            ports: taken.as_str(),
            reason,
            message,
        };
        self.write("giving a pod back", &give_back.call()).await
    }

    pub async fn report(&self, pod: PodRef<'_>, status: &StatusReport<'_>) -> SessionResult<WriteOutcome> {
        let published = |network: &ContainerNetwork| ports_to_json(pod.assignment, &network.ports);
        let report = report::Head {
            node_key: keys::node(&self.node),
            pod_key: keys::pod(pod.id),
            ep_key: keys::endpoints_of(status.service),
            node: &self.node,
            incarnation: &self.incarnation,
            uuid: pod.id,
            assignment: pod.assignment,
            reason: status.reason,
            message: status.message,
            restarts: status.restarts,
            exit_code: status.exit_code,
            address: status.network.map(|network| &network.address),
            published: status.network.map(published),
            containers: containers_field(status.containers),
            kept_runs: kept_runs(status.containers),
            runs: runs_field(status.runs),
        };
        self.write("reporting on a pod", &report.call()).await
    }

    /// Returns the images pinned by the first pod of the specification, possibly this one; `None` if the pod
    /// should no longer start here. `differs` says how these differ.
    pub async fn note_images(
        &self,
        pod: PodRef<'_>,
        (service, spec): (Option<&ServiceName>, Option<&SpecId>),
        images: &[ImageContent],
        differs: &str,
    ) -> SessionResult<Option<Vec<ImageContent>>> {
        let what = "noting the images of a pod";
        let note_images = note_images::Head {
            node_key: keys::node(&self.node),
            pod_key: keys::pod(pod.id),
            service_key: service.map_or_else(|| "service:".to_owned(), keys::service),
            node: &self.node,
            incarnation: &self.incarnation,
            uuid: pod.id,
            assignment: pod.assignment,
            spec: spec.filter(|_| service.is_some()),
            images: image::to_text(images),
            differs,
        };
        let (answer, rest) = verdict(what, self.store.link.script(&note_images.call()).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(pinned)) => Ok(Ok(Some(image::from_text(&word(what, pinned)?)))),
            ("STALE", _) => Ok(Ok(None)),
            ("FENCED", _) => Ok(Err(Fenced::Dead)),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    pub async fn reject<'a>(
        &self,
        payload: &[u8],
        pod: impl Into<RejectedPod<'a>>,
        reason: &str,
    ) -> SessionResult<WriteOutcome> {
        if payload.len() > GIANT {
            // It is not sent back. The script finds it by its size.
            return self.in_flight().await.map(|_| Ok(WriteOutcome::Done));
        }
        let taken_by = TakenBy::Worker(&self.node, &self.incarnation);
        match self.store.reject(taken_by, payload, pod.into(), reason).await?.as_str() {
            "OK" => Ok(Ok(WriteOutcome::Done)),
            "GONE" | "KNOWN" => Ok(Ok(WriteOutcome::Stale)),
            "FENCED" => Ok(Err(Fenced::Dead)),
            other => Err(unexpected("rejecting a payload", other)),
        }
    }

    async fn write(&self, what: &str, call: &Call<'_>) -> SessionResult<WriteOutcome> {
        match word(what, self.store.link.script(call).await?)?.as_str() {
            "OK" => Ok(Ok(WriteOutcome::Done)),
            "STALE" => Ok(Ok(WriteOutcome::Stale)),
            "WANTED" => Ok(Ok(WriteOutcome::Wanted)),
            "FENCED" => Ok(Err(Fenced::Dead)),
            other => Err(unexpected(what, other)),
        }
    }
}

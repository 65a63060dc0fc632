//! From a payload in the in-flight list (`rq`) to a pod that may start: parsing, policy, and claim.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use model::ids::ServiceName;
use model::node::Resources;
use model::pod::payload::Payload;
use model::spec::{HostPorts, PodSpec};
use store::{ClaimItem, ClaimReply, RejectedPod, SessionResult, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::running::table::Admission;
use crate::session::context::SessionContext;
use crate::support::measure;
use crate::worker::MAX_START_ATTEMPTS;

pub(crate) struct StartJob {
    pub(crate) payload: Payload,
    pub(crate) service: Option<ServiceName>,
    /// `None` if the specification does not exist.
    pub(crate) spec: Option<Arc<PodSpec>>,
}

/// While it exists, no other start of the pod begins.
pub(crate) struct StartGuard {
    context: Arc<SessionContext>,
    payload: Payload,
    pub(crate) recheck: Arc<Notify>,
}

impl StartGuard {
    fn acquire(context: &Arc<SessionContext>, payload: &Payload) -> Option<Self> {
        match context.table.admit(payload) {
            Admission::Started(recheck) => {
                Some(Self { context: context.clone(), payload: payload.clone(), recheck })
            }
            Admission::Duplicate => None,
        }
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if self.context.table.release_start(&self.payload.id) {
            // A duplicate of the payload has arrived meanwhile.
            self.context.wakeups.request_sweep();
        }
    }
}

pub(crate) struct AdmittedJob {
    pub(crate) job: StartJob,
    pub(crate) guard: StartGuard,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Payloads that cannot be pods become dead letters. Duplicates of starting pods stay in the in-flight list.
///
/// # Errors
/// All payloads are then still in the in-flight list, or were rejected.
pub(crate) async fn admit(
    context: &Arc<SessionContext>,
    taken: Vec<(Bytes, OwnedSemaphorePermit)>,
) -> Result<Vec<AdmittedJob>, StoreError> {
    let mut parsed = Vec::with_capacity(taken.len());
    for (raw, permit) in taken {
        match Payload::parse(raw.clone()) {
            Ok(payload) => parsed.push((raw, payload, permit)),
            Err(invalid) => reject(context, &raw, RejectedPod::Unreadable, &invalid.to_string()).await,
        }
    }
    let specs = parsed.iter().filter_map(|(_, payload, _)| payload.spec.as_ref());
    context.worker.store.read_pod_specs(specs).await?;
    let mut admitted = Vec::with_capacity(parsed.len());
    for (raw, payload, permit) in parsed {
        let Some(guard) = StartGuard::acquire(context, &payload) else { continue };
        match resolve(context, payload).await? {
            Ok(job) => admitted.push(AdmittedJob { job, guard, permit }),
            Err(reason) => reject(context, &raw, RejectedPod::Known(&guard.payload.id), &reason).await,
        }
    }
    Ok(admitted)
}

async fn resolve(context: &SessionContext, payload: Payload) -> Result<Result<StartJob, String>, StoreError> {
    let Some(id) = &payload.spec else {
        return Ok(match payload.inline_spec() {
            Err(invalid) => Err(invalid.to_string()),
            Ok(inline) => match policy::unknown_fields::refusal(&inline.unknown) {
                Some(reason) => Err(reason),
                None => Ok(StartJob { payload, service: None, spec: Some(Arc::new(inline.pod)) }),
            },
        });
    };
    let spec = match context.worker.store.pod_spec(id).await {
        Ok(spec) => spec,
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => return Ok(Err(format!("its specification {id} cannot be read: {error}"))),
    };
    Ok(Ok(StartJob { service: payload.service(), spec, payload }))
}

pub(crate) async fn claim<'a>(
    context: &SessionContext,
    jobs: impl Iterator<Item = &'a StartJob>,
) -> SessionResult<ClaimReply> {
    let items: Vec<ClaimItem> = jobs.map(StartJob::claim_item).collect();
    context.session.claim(&items, MAX_START_ATTEMPTS, context.worker.config.timing.fence_after).await
}

pub(crate) async fn reject(context: &SessionContext, raw: &Bytes, pod: RejectedPod<'_>, reason: &str) {
    let node = &context.worker.node;
    tracing::warn!(%node, ?pod, reason, "payload rejected: moving it to the dead letters");
    measure::start("rejected");
    context.persist("rejecting a payload", || context.session.reject(raw, pod, reason).boxed()).await;
}

impl StartJob {
    fn claim_item(&self) -> ClaimItem {
        let spec = self.spec.as_ref();
        let none = Resources { pods: 1, ..Resources::default() };
        let request = spec.map_or(none, |spec| spec.request());
        let host_ports = spec.map_or_else(HostPorts::default, |spec| spec.host_ports());
        ClaimItem { payload: self.payload.clone(), request, host_ports }
    }
}

//! One heartbeat: renews the lease (invariant 5), and returns pods to stop and pods of other nodes (invariant
//! 3).

use daemon::clock::BootInstant;
use model::RedisMillis;
use model::ids::{AssignmentId, PodId};
use store::{HeartbeatReply, RedisProcess, StoreError};
use tokio::time::Instant;

use crate::session::broken_records::UNUSABLE_FIELDS;
use crate::session::context::SessionContext;
use crate::session::reply_class::ReplyClass;
use crate::support::measure;

pub(crate) struct HeartbeatOutcome {
    /// Or a little earlier.
    pub(crate) sent: BootInstant,
    /// Identifies the answering master.
    pub(crate) master_changed_at: RedisMillis,
    pub(crate) foreign: Vec<PodId>,
    pub(crate) unknown: Vec<PodId>,
    pub(crate) redis: RedisProcess,
}

/// Already logged.
pub(crate) enum HeartbeatError {
    Fenced,
    Store(StoreError),
}

/// The lease is not renewed if a pod that must not run twice may run here although this master may assign it
/// to another node.
pub(crate) async fn beat(
    context: &SessionContext,
    checked: &[(PodId, AssignmentId)],
) -> Result<HeartbeatOutcome, HeartbeatError> {
    let worker = &context.worker;
    // The lease counts from before the heartbeat is sent.
    let sent = worker.now();
    let started = Instant::now();
    let problem = worker.engine.obstacle();
    let (pressure, held) = ((worker.pressure)(), context.held.count());
    let reply = context.session.heartbeat(pressure.as_ref(), problem.as_deref(), held, checked).await;
    if let Ok(Err(fenced)) = reply {
        measure::heartbeat("fenced");
        context.fenced.set(fenced);
        return Err(HeartbeatError::Fenced);
    }
    let reply = match context.classify("the heartbeat", reply) {
        ReplyClass::Reply(reply) => reply,
        ReplyClass::Fenced => return Err(HeartbeatError::Fenced),
        ReplyClass::Transient(error) | ReplyClass::Permanent(error) => {
            measure::heartbeat("failed");
            return Err(HeartbeatError::Store(error));
        }
    };
    measure::heartbeat("ok");
    measure::heartbeat_took(started.elapsed());
    context.link.note_answer();
    context.throttle.set_nodes(reply.nodes);
    if reply.foreign.iter().any(|pod| !context.held.contains(pod)) {
        context.link.set_confirmed_by(None);
    }
    if context.link.is_confirmed_by(reply.master_changed_at) {
        renew_lease(context, sent, &reply.redis);
    } else {
        context.wakeups.request_full_reconcile();
    }
    apply(context, &reply);
    for pod in &reply.broken {
        context.broken_records.note(pod, UNUSABLE_FIELDS);
    }
    let HeartbeatReply { master_changed_at, foreign, unknown, redis, .. } = reply;
    Ok(HeartbeatOutcome { sent, master_changed_at, foreign, unknown, redis })
}

pub(crate) fn renew_lease(context: &SessionContext, sent: BootInstant, redis: &RedisProcess) {
    let was_leased = context.worker.is_leased();
    context.worker.renew_lease(sent, redis);
    if !was_leased && context.worker.is_leased() {
        // Resumes work, and reports containers that the fence removed.
        context.wakeups.request_full_reconcile();
    }
}

fn apply(context: &SessionContext, reply: &HeartbeatReply) {
    if context.link.note_master(reply.master_changed_at) {
        context.table.recheck_starts();
    }
    for pod in &reply.stop {
        if !context.table.request_stop(pod) {
            context.unknown_pods.note(pod);
        }
    }
    if !reply.stop.is_empty() {
        context.wakeups.request_reconcile();
    }
}

/// Managed pods without a record may be held: the next full listing decides.
pub(crate) fn settle(
    context: &SessionContext,
    checked: &[(PodId, AssignmentId)],
    outcome: &HeartbeatOutcome,
) {
    let is_undecided = |pod: &PodId| outcome.unknown.contains(pod) && context.table.get(pod).is_some();
    let (undecided, foreign): (Vec<PodId>, _) = outcome.foreign.iter().cloned().partition(is_undecided);
    mark_foreign(context, checked, &foreign);
    let undecided = checked.iter().filter(|(pod, _)| undecided.contains(pod) && !context.held.contains(pod));
    let undecided: Vec<_> = undecided.cloned().collect();
    if !undecided.is_empty() {
        context.held.request_check(undecided);
        context.wakeups.request_full_reconcile();
    }
}

fn mark_foreign(context: &SessionContext, checked: &[(PodId, AssignmentId)], foreign: &[PodId]) {
    let mut any_known = false;
    for (pod, assignment) in checked.iter().filter(|(pod, _)| foreign.contains(pod)) {
        any_known |= context.table.mark_foreign(pod, assignment);
    }
    if any_known {
        context.wakeups.request_reconcile();
    }
}

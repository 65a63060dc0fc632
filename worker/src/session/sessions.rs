//! The sessions of a worker: register, run the loops, end them in order.
//!
//! When the cluster gives up on this worker, its pods were assigned to other nodes: its containers are
//! removed. Only this file knows the loops.

use std::sync::Arc;
use std::time::Instant;

use daemon::control_loop::run_loop;
use store::{Fenced, Session};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::backup::backup_loop::BackupLoop;
use crate::error::WorkerError;
use crate::fencing::fence;
use crate::fencing::former_names;
use crate::handover::link::HandoverLoop;
use crate::node::garbage::GarbageLoop;
use crate::node::pod_network::PodNetworkLoop;
use crate::node::report_directory::DirectoryLoop;
use crate::node::report_problems::ProblemsLoop;
use crate::node::usage::UsageLoop;
use crate::node::volume_sizes::VolumeSizeLoop;
use crate::node::volumes::VolumeLoop;
use crate::running::health_checks;
use crate::running::reconcile_loop::WorkerReconcileLoop;
use crate::running::reload_files::ReloadLoop;
use crate::session::context::SessionContext;
use crate::session::heartbeat::HeartbeatLoop;
use crate::session::register::{purge, register};
use crate::session::registrations::{Registrations, Replacement};
use crate::start::ack::AckLoop;
use crate::start::claim::ClaimLoop;
use crate::worker::Worker;

enum SessionEnd {
    Shutdown,
    Fenced(Fenced),
    LoopPanicked,
}

/// The fence spans all sessions.
pub(crate) async fn run(worker: Arc<Worker>, shutdown: CancellationToken) -> Result<(), WorkerError> {
    let (startup_fence_done, is_startup_fence_done) = oneshot::channel();
    let fence = tokio::spawn(fence::run(worker.clone(), shutdown.clone(), startup_fence_done));
    let mut fence = AbortOnDropHandle::new(fence);
    let broken = || Err(WorkerError::Broken { node: worker.node.clone() });
    match is_startup_fence_done.await {
        Ok(()) => {}
        Err(_) if shutdown.is_cancelled() => return Ok(()),
        Err(_) => return broken(),
    }
    let former_names = tokio::spawn({
        let worker = worker.clone();
        async move { former_names::watch(&worker).await }
    });
    let _former_names = AbortOnDropHandle::new(former_names);
    tokio::select! {
        ended = run_sessions(&worker, &shutdown) => ended,
        // Without the fence no pod may run here.
        _ = &mut fence => broken(),
    }
}

async fn run_sessions(worker: &Arc<Worker>, shutdown: &CancellationToken) -> Result<(), WorkerError> {
    let node = &worker.node;
    let mut registrations = Registrations::default();
    while let Some(session) = register(worker, shutdown).await? {
        registrations.note(session.incarnation());
        match run_session(worker, session, shutdown).await {
            SessionEnd::Shutdown => break,
            SessionEnd::LoopPanicked => return Err(WorkerError::Broken { node: node.clone() }),
            // A process that shares this one's state directory is the same holder, and competes.
            SessionEnd::Fenced(Fenced::Replaced) => {
                let found = worker.store.node(node).await.ok().flatten().and_then(|found| found.incarnation);
                match registrations.replaced(found.as_ref(), Instant::now()) {
                    Replacement::Lost => tracing::warn!(
                        %node,
                        "Redis has lost our registration, as in a failover: registering again"
                    ),
                    Replacement::Another => tracing::warn!(
                        %node,
                        "another worker has registered under this name, or a failover has brought an earlier \
                         registration back: registering again"
                    ),
                    Replacement::AnotherAgain => {
                        return Err(WorkerError::Replaced { node: node.clone() });
                    }
                }
            }
            // Registration waits until the cluster is back.
            SessionEnd::Fenced(Fenced::UnknownCluster) => {}
            SessionEnd::Fenced(Fenced::Dead) => {
                tracing::warn!(%node, "declared dead, its pods move to other nodes: removing its containers");
                worker.lease.give_up();
                purge(worker, shutdown).await;
            }
        }
    }
    Ok(())
}

/// Heartbeats go on until the last stage of the end.
async fn run_session(worker: &Arc<Worker>, session: Session, shutdown: &CancellationToken) -> SessionEnd {
    let (context, ack_requests, health_changes) = SessionContext::new(worker.clone(), session);
    let _abort = context.tasks.abort_on_drop();
    let aborted = context.tasks.aborted();
    let mut loops = JoinSet::new();
    loops.spawn(run_loop(HeartbeatLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(WorkerReconcileLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(ClaimLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(AckLoop::new(context.clone(), ack_requests), aborted.clone()));
    loops.spawn(run_loop(HandoverLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(PodNetworkLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(BackupLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(ReloadLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(VolumeLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(VolumeSizeLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(GarbageLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(UsageLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(DirectoryLoop::new(context.clone()), aborted.clone()));
    loops.spawn(run_loop(ProblemsLoop::new(context.clone()), aborted.clone()));
    health_checks::spawn(&context, health_changes);
    let end = tokio::select! {
        () = shutdown.cancelled() => SessionEnd::Shutdown,
        fenced = context.fenced.wait() => SessionEnd::Fenced(fenced),
        () = any_panicked(&mut loops) => SessionEnd::LoopPanicked,
    };
    if !context.tasks.stop(worker.timings.shutdown_timeout).await {
        let node = &worker.node;
        tracing::warn!(%node, "some starts or stops are still under way; the next session takes over");
    }
    context.tasks.abort();
    loops.shutdown().await;
    end
}

async fn any_panicked(loops: &mut JoinSet<()>) {
    while let Some(ended) = loops.join_next().await {
        if ended.is_err() {
            return;
        }
    }
    std::future::pending().await
}

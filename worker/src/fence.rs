//! The fence: no pod that must never run twice runs on without a lease. Invariant 5.
//!
//! It reads the clock, the lease and the containers' labels, and needs no Redis: that Redis is away is its reason. It
//! looks again and again for as long as the lease is out, so that a container whose start was under way when the lease
//! ran out is caught as well; only after that the lease can be renewed. `keep` pods are left alone.
//!
//! The worker holds it for as long as it lives and tells its guard so ([`crate::pulse`]); when the worker falls silent
//! the guard holds it, with the same [`enforce`].

use std::sync::Arc;
use std::time::Duration;

use common::clock::{BootInstant, Clock};
use common::config::Timing;
use common::ids::NodeName;
use common::spec::OnDisconnect;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, jittered};
use crate::lease::{Found, Standing};
use crate::runtime::{Container, ContainerState, Runtime, RuntimeError};
use crate::worker::{Asked, Worker};

/// The tokio clock stands still while the machine sleeps; the lease's does not. So no sleep is longer than this.
const GLANCE: Duration = Duration::from_secs(1);
/// Between two looks while the lease is out and what was begun under it may still appear.
pub(crate) const AGAIN: Duration = Duration::from_millis(250);
/// When no start is under way and nothing has appeared for so long, a [`GLANCE`] is enough: Redis may be away for hours.
const QUIET: Duration = Duration::from_secs(3);
/// Kept free between the last SIGKILL and the moment another node may start the pod.
const MARGIN: Duration = Duration::from_secs(2);
/// How long leftovers of a worker that is gone have to end: they may run elsewhere by now.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// How many containers are stopped at a time.
const AT_A_TIME: usize = 64;

/// Holds the fence for as long as the process lives, over all lives of the worker: first the leftovers of the worker
/// before, which is told through `swept`, then its own pods.
pub(crate) async fn hold(worker: Arc<Worker>, shutdown: CancellationToken, swept: oneshot::Sender<()>) {
    let holding = async {
        if at_startup(&worker, &shutdown).await {
            // Nobody listens any more when the worker is being ended.
            let _ended = swept.send(());
            watch(&worker).await;
        }
    };
    // One task with the fence, so that the guard hears nothing any more when this task hangs or has panicked.
    worker.pulse.alongside(&worker.config.timing, holding).await;
}

async fn watch(worker: &Worker) {
    let mut fenced = false;
    let mut last_found = Instant::now();
    loop {
        match worker.lease.standing(worker.now()) {
            Standing::None => {
                fenced = false;
                tokio::time::sleep(GLANCE.min(worker.config.timing.heartbeat)).await;
            }
            Standing::Good(left) => {
                if std::mem::take(&mut fenced) {
                    tracing::info!(node = %worker.node, "the lease is good again");
                }
                tokio::time::sleep(left.min(GLANCE)).await;
            }
            Standing::Out(deadline) => {
                if !std::mem::replace(&mut fenced, true) {
                    last_found = Instant::now();
                    metrics::counter!("kubeleet_worker_fenced_total").increment(1);
                    tracing::error!(
                        node = %worker.node,
                        "no heartbeat has been answered for {:?}: pods with `on_disconnect: stop` are stopped now, \
                         for they may be started elsewhere; pods with `keep` run on",
                        worker.config.timing.fence_after
                    );
                }
                let timing = &worker.config.timing;
                let look = enforce(&*worker.runtime, &worker.node, timing, deadline, &*worker.clock);
                let all_is_seen = match look.await {
                    Ok(found) => worker.lease.fenced(deadline) && found == 0,
                    Err(error) => {
                        tracing::error!(node = %worker.node, %error, "the fence could not stop all pods; trying on");
                        false
                    }
                };
                if !all_is_seen {
                    last_found = Instant::now();
                }
                tokio::time::sleep(rest(last_found.elapsed())).await;
            }
        }
    }
}

/// Between two looks while the lease is out, when nothing was found for so long.
fn rest(quiet: Duration) -> Duration {
    if quiet > QUIET { GLANCE } else { AGAIN }
}

/// One look: stops every `stop` pod of this node that runs, or may yet. Gives how many there were.
pub(crate) async fn enforce(
    runtime: &dyn Runtime,
    node: &NodeName,
    timing: &Timing,
    deadline: BootInstant,
    clock: &dyn Clock,
) -> Result<usize, RuntimeError> {
    let containers = runtime.list(node).await?;
    let running = |container: &Container| {
        container.on_disconnect == OnDisconnect::Stop
            && matches!(container.state, ContainerState::Running | ContainerState::Created)
    };
    let to_stop: Vec<_> = containers.into_iter().filter(running).collect();
    for container in &to_stop {
        tracing::warn!(%node, pod = %container.pod, "stopped by the fence");
    }
    let found = to_stop.len();
    stop_all(runtime, to_stop, |container| grace(container.grace, timing, deadline, clock.now())).await?;
    Ok(found)
}

/// How long a container may take to end so that it is gone before its pod may be started elsewhere.
fn grace(wanted: Duration, timing: &Timing, deadline: BootInstant, now: BootInstant) -> Duration {
    let death = deadline.plus(timing.dead_after.saturating_sub(timing.fence_after));
    wanted.min(death.since(now).saturating_sub(MARGIN))
}

/// Stops and removes containers, many at a time; the first error, if there was one.
async fn stop_all(
    runtime: &dyn Runtime,
    containers: Vec<Container>,
    grace: impl Fn(&Container) -> Duration,
) -> Result<(), RuntimeError> {
    let stops = containers.into_iter().map(|container| {
        let grace = grace(&container);
        async move { runtime.stop(&container.handle, grace).await }
    });
    let results: Vec<_> = stream::iter(stops).buffer_unordered(AT_A_TIME).collect().await;
    results.into_iter().collect()
}

/// Before a worker does anything: where the lease of the worker before has run out, its leftovers end. Tries until it
/// is done or `shutdown`. Gives whether it is done.
async fn at_startup(worker: &Worker, shutdown: &CancellationToken) -> bool {
    match worker.lease.found() {
        Found::Deadline(deadline) if worker.now() < deadline => {
            worker.lease.take_over(deadline);
            return true;
        }
        Found::Deadline(_) => {
            tracing::info!(node = %worker.node, "the lease of the worker before has run out")
        }
        Found::Nothing(why) => tracing::debug!(node = %worker.node, why, "no lease of a worker before"),
    }
    let must_stop = |container: &Container| container.on_disconnect == OnDisconnect::Stop;
    insist(worker, shutdown, "startup fence", must_stop, LEFTOVER_GRACE).await
}

/// All that runs here has been given away: stops and removes every container of this node. Gives whether it is done.
pub(crate) async fn purge(worker: &Worker, shutdown: &CancellationToken) -> bool {
    insist(worker, shutdown, "its pods were given away", |_| true, Duration::from_secs(10)).await
}

async fn insist(
    worker: &Worker,
    shutdown: &CancellationToken,
    why: &str,
    which: impl Fn(&Container) -> bool,
    longest_grace: Duration,
) -> bool {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    loop {
        let tried = async {
            let containers = worker.runtime.list(&worker.node).await?;
            let found: Vec<_> = containers.into_iter().filter(|container| which(container)).collect();
            if !found.is_empty() {
                tracing::warn!(node = %worker.node, why, count = found.len(), "stopping leftover containers");
            }
            stop_all(&*worker.runtime, found, |container| container.grace.min(longest_grace)).await
        };
        let result = tokio::select! {
            () = shutdown.cancelled() => return false,
            result = tried => result,
        };
        worker.engine.heard(Asked::List, &result);
        if result.is_ok() {
            return true;
        }
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(jittered(backoff.next())) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_less_often_once_nothing_appears_any_more_and_never_seldom() {
        assert_eq!(rest(Duration::ZERO), AGAIN);
        assert_eq!(rest(QUIET), AGAIN);
        assert_eq!(rest(Duration::from_secs(3600)), GLANCE);
    }

    #[test]
    fn what_is_stopped_is_gone_before_it_may_start_elsewhere() {
        let seconds = Duration::from_secs;
        let at = |seconds: u64| BootInstant { millis: seconds * 1000 };
        let timing = Timing::default();
        // The lease ran out at 100: the node may be declared dead at 105.
        let table = [(10, 100, 3), (1, 100, 1), (10, 102, 1), (10, 103, 0), (10, 500, 0), (0, 100, 0)];
        for (wanted, now, expected) in table {
            assert_eq!(
                grace(seconds(wanted), &timing, at(100), at(now)),
                seconds(expected),
                "{wanted} {now}"
            );
        }
        let short = Timing { heartbeat: seconds(1), fence_after: seconds(2), dead_after: seconds(3) };
        assert_eq!(grace(seconds(10), &short, at(100), at(100)), Duration::ZERO);
    }
}

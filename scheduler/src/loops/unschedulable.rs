//! Returns unschedulable pods to the queue once they fit. Invariant 2 says where they wait.
//!
//! Classes are woken, not pods: when room has appeared, and every five seconds, one scheduler looks how many
//! pods of each class fit, with the code that decides, and returns just these. Pods without a class wait for
//! their backoff. Beneath, any scheduler has the oldest pod of each class decided about once a minute,
//! whatever a look says.
//!
//! Tests: tests::waking, scripts::unschedulable, schedules

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::metrics::gauge;
use daemon::control_loop::{Loop, Next};
use model::pod::Refusal;
use model::spec::PlacementProfile;
use pending::{ClassLook, look_at_classes};
use placement::PlacementPolicy;
use store::tick_or_hints;
use store::{Store, StoreError, Subscription, channel};

use crate::apply::unschedulable_message;
use crate::context::SchedulerContext;
use crate::loop_lease::{LeaseStanding, LoopLease};
use crate::metrics;
use crate::view::ClusterView;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MIN_STEP_INTERVAL: Duration = Duration::from_millis(500);
/// From one look to the next without a hint.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Looks take at most a tenth of the time.
const REST_PER_LOOK: u32 = 9;
const LEASE_TIME: Duration = Duration::from_secs(4);
/// A few milliseconds of Redis.
const MAX_BATCH: usize = 1000;
const CLASSES_PER_PAGE: usize = 500;
/// The number of pods of a class that a look wakes only because they fit nowhere for other reasons now.
const OUTDATED_PODS: usize = 100;

pub(crate) struct UnschedulableLoop {
    store: Store,
    policy: PlacementPolicy,
    profile: PlacementProfile,
    view: ClusterView,
    lease: LoopLease,
    hints: Subscription,
    /// By a hint, or because more pods may fit.
    is_woken: bool,
    /// Before the last look, by whichever scheduler.
    seen_freed: Option<u64>,
    looked_at: Option<Instant>,
    look_time: Duration,
}

impl Loop<StoreError> for UnschedulableLoop {
    const NAME: &'static str = "unschedulable";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let freed = self.store.unpark_due(MAX_BATCH).await?.freed;
        let has_waited = self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL);
        if !self.is_woken && !has_waited && self.seen_freed == Some(freed) {
            return Ok(Next::Rest);
        }
        let begun = Instant::now();
        let woken = match self.lease.acquire().await? {
            LeaseStanding::Without => {
                gauge!(metrics::UNSCHEDULABLE_CLASSES).set(0.0);
                0
            }
            LeaseStanding::New | LeaseStanding::Kept => self.look().await?,
        };
        // Only now: a failed look is repeated. After many pods more may fit.
        (self.is_woken, self.seen_freed) = (woken >= MAX_BATCH, Some(freed));
        (self.looked_at, self.look_time) = (Some(begun), begun.elapsed());
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        let pause = MIN_STEP_INTERVAL.max(std::mem::take(&mut self.look_time) * REST_PER_LOOK);
        tokio::time::sleep(pause).await;
        let hints = tick_or_hints(CHECK_INTERVAL.saturating_sub(pause), &mut self.hints).await;
        self.is_woken |= !hints.is_empty();
        Ok(())
    }
}

/// Also wakes some pods of a class that fits nowhere for other reasons than they say. Then they say these.
fn wakes<'a>(looks: &[ClassLook<'a>], nodes: usize) -> Vec<(&'a str, usize)> {
    let mut left = MAX_BATCH;
    let of_class = |look: &ClassLook<'a>| {
        let says = |refusals: &[Refusal]| unschedulable_message(nodes.max(1), refusals);
        let is_outdated = |refusals: &Arc<[Refusal]>| says(refusals) != says(&look.class.refusals);
        let mut count = look.wakes;
        if count == 0 && look.refusals.as_ref().is_some_and(is_outdated) {
            count = look.class.pods.min(OUTDATED_PODS).min(left);
            left -= count;
        }
        (count > 0).then_some((look.class.class.as_str(), count))
    };
    looks.iter().filter_map(of_class).collect()
}

impl UnschedulableLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let policy = context.placement_policy();
        Self {
            store: context.store.clone(),
            view: ClusterView::new(policy.weights),
            policy,
            profile: context.profile,
            lease: LoopLease::new(&context.store, &context.id, Self::NAME, LEASE_TIME),
            hints: context.store.subscribe(channel::SCHEDULER),
            is_woken: false,
            seen_freed: None,
            looked_at: None,
            look_time: Duration::ZERO,
        }
    }

    /// Returns how many pods it has woken.
    async fn look(&mut self) -> Result<usize, StoreError> {
        let (begun, mut count, mut woken) = (Instant::now(), 0, 0);
        let mut after = String::new();
        loop {
            let classes = self.store.unschedulable_classes(&after, CLASSES_PER_PAGE).await?;
            count += classes.len();
            gauge!(metrics::UNSCHEDULABLE_CLASSES).set(count as f64);
            let Some(last) = classes.last() else { return Ok(woken) };
            // After the classes: of a pod that is parked later the scripts say whether room appeared.
            self.view.read_all_after(&self.store, begun).await?;
            let now = self.view.now();
            let snapshot = self.view.snapshot_mut();
            let (policy, profile) = (&self.policy, self.profile);
            let looks =
                look_at_classes(&self.store, snapshot, now, policy, profile, &classes, MAX_BATCH).await?;
            woken += self.store.unpark_classes(&wakes(&looks, self.view.snapshot().len())).await?;
            // The order of entries that another program has changed is any.
            if classes.len() < CLASSES_PER_PAGE || last.class <= after {
                return Ok(woken);
            }
            after.clone_from(&last.class);
        }
    }
}

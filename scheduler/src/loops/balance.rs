//! Moves pods that run without being asked, if `KUBELEET_REBALANCE` says so: to a node that joined, and away
//! from one under pressure.
//!
//! The plan is that of `rebalance`, its moves are in the records of the services, and the reconcile loop
//! carries them out. The rest is only in this process: another holder looks anew, with the whole budget.
//!
//! Tests: tests::rebalancing, balance

use std::time::{Duration, Instant};

use daemon::control_loop::{Loop, Next};
use model::node::{Node, NodeState, RebalancePolicy};
use model::spec::PlacementProfile;
use pending::{ClusterState, PlannedChange, Relief, begin_planned_moves, plan};
use placement::PlacementPolicy;
use store::{Store, StoreError};

use crate::balance::{Budget, JoinTrigger, PressureWatch, sufferers};
use crate::context::SchedulerContext;
use crate::loop_lease::{LeaseStanding, LoopLease};

/// Then a pod that could not move stays.
const MOVE_TIME: Duration = Duration::from_secs(3600);
const RELIEFS_PER_HOUR: usize = 4;

pub(crate) struct BalanceLoop {
    store: Store,
    lease: LoopLease,
    interval: Duration,
    reasons: RebalancePolicy,
    policy: PlacementPolicy,
    profile: PlacementProfile,
    joined: JoinTrigger,
    budget: Budget,
    pressure: PressureWatch,
    /// A pod that is younger may bring the pressure along.
    min_relief_age: Duration,
    reliefs: Budget,
}

impl Loop<StoreError> for BalanceLoop {
    const NAME: &'static str = "balance";

    async fn step(&mut self) -> Result<Next, StoreError> {
        match self.lease.acquire().await? {
            LeaseStanding::Without => return Ok(Next::Rest),
            LeaseStanding::New => self.forget(),
            LeaseStanding::Kept => {}
        }
        let names = self.store.node_names().await?;
        let nodes = self.store.nodes(&names).await?.found();
        let usable: Vec<&Node> = nodes.iter().filter(|node| is_usable(node)).collect();
        if self.reasons.joined {
            self.joined.observe(Instant::now(), usable.iter().map(|node| node.name.clone()).collect());
            self.balance().await?;
        }
        if self.reasons.pressure {
            self.pressure.observe(Instant::now(), &usable);
            self.relieve().await?;
        }
        Ok(Next::Rest)
    }

    async fn rest(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.interval).await;
        Ok(())
    }
}

/// It may get pods.
fn is_usable(node: &Node) -> bool {
    node.state == NodeState::Alive && !node.cordoned && node.drain.is_none()
}

impl BalanceLoop {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        let (store, timings) = (context.store.clone(), &context.timings);
        let interval = timings.calm_time / 6;
        Self {
            lease: LoopLease::new(&store, &context.id, Self::NAME, 4 * interval),
            store,
            interval,
            reasons: context.rebalance,
            policy: context.placement_policy(),
            profile: context.profile,
            joined: JoinTrigger::new(timings.calm_time),
            budget: Budget::new(context.rebalance_moves),
            pressure: PressureWatch::new(timings.pressure_time),
            min_relief_age: 20 * timings.pressure_time,
            reliefs: Budget::new(RELIEFS_PER_HOUR),
        }
    }

    /// Another scheduler has looked meanwhile.
    fn forget(&mut self) {
        self.joined.forget();
        self.pressure.forget();
    }

    async fn balance(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let max_moves = self.budget.left(now);
        if !self.joined.is_due(now) || max_moves == 0 {
            return Ok(());
        }
        let change = PlannedChange::Rebalance { max_moves };
        let (moves, is_calm) = self.carry_out(change, "the nodes are balanced").await?;
        self.budget.spend(now, moves);
        self.joined.ran(now, moves, is_calm);
        Ok(())
    }

    async fn relieve(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        let Some((node, kind, is_lasting)) = self.pressure.worst(now) else { return Ok(()) };
        if self.reliefs.left(now) == 0 {
            return Ok(());
        }
        // Its report is there when the pressure has lasted.
        self.store.look_at_usage(Some(&node)).await?;
        let reports =
            if is_lasting { self.store.usage_of(std::slice::from_ref(&node)).await? } else { vec![] };
        let Some(report) = reports.into_iter().flatten().next() else { return Ok(()) };
        self.pressure.count_anew(now, &node);
        let pods = sufferers(kind, &report);
        if pods.is_empty() {
            return Ok(());
        }
        let change = PlannedChange::Relieve(Relief { kind, pods, min_age: self.min_relief_age });
        let why = format!("{node} has been under {} pressure", kind.as_str());
        let (moves, _) = self.carry_out(change, &why).await?;
        self.reliefs.spend(now, moves);
        Ok(())
    }

    /// Returns the number of moves, and whether all services could be considered.
    async fn carry_out(&self, change: PlannedChange, why: &str) -> Result<(usize, bool), StoreError> {
        let Some(state) = ClusterState::read(&self.store).await? else {
            tracing::warn!(
                "the cluster has too many pods for a plan: no pod moves, as KUBELEET_REBALANCE asks"
            );
            return Ok((0, true));
        };
        let (until, is_calm) = (state.now() + MOVE_TIME.as_millis() as u64, state.is_calm());
        let (policy, profile) = (self.policy.clone(), self.profile);
        let planned = tokio::task::spawn_blocking(move || plan(state, &policy, profile, &[change])).await;
        let mut outcome = match planned {
            Ok(Ok(outcome)) => outcome,
            failed => {
                tracing::error!(?failed, "a plan failed: this is a bug in kubeleet; no pod moves");
                return Ok((0, true));
            }
        };
        let moves = begin_planned_moves(&self.store, &mut outcome, until, why).await?;
        Ok((moves, is_calm))
    }
}

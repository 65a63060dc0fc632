//! Moves pods away from nodes that no longer satisfy the constraints of their service, as
//! [`super::violations`] decides.
//!
//! Tests: tests::violations

use std::time::{Duration, Instant};

use model::ids::ServiceName;
use model::spec::PlacementProfile;
use pending::{LeavingPod, begin_moves, plan_leaving};
use placement::PlacementPolicy;
use store::{ObservedCondition, Store, StoreError};

use super::violations::{FoundViolations, MisplacedPod, Verdict, Violations};
use crate::context::SchedulerContext;

/// The next pass plans the rest: a plan reads all nodes once, whatever its size.
const MAX_PLANNED: usize = 250;

pub(crate) struct ViolatingPods {
    store: Store,
    policy: PlacementPolicy,
    profile: PlacementProfile,
    lasting: Duration,
    violations: Violations,
    /// Why none moves; `None` if it is not known what Redis says.
    held: Option<String>,
}

impl ViolatingPods {
    pub(crate) fn new(context: &SchedulerContext) -> Self {
        Self {
            store: context.store.clone(),
            policy: context.placement_policy(),
            profile: context.profile,
            lasting: context.timings.violation_time,
            violations: Violations::default(),
            held: None,
        }
    }

    /// Those that fit nowhere else stay, and are planned again by the next pass.
    pub(crate) async fn move_away(&mut self, found: FoundViolations) -> Result<(), StoreError> {
        match self.violations.judge(found, self.lasting, Instant::now()) {
            Verdict::Hold(why) => self.tell(why).await,
            Verdict::Move(by_service) => {
                self.tell(String::new()).await?;
                for (service, violations) in by_service {
                    match self.plan(&service, violations).await {
                        Err(error) if !error.is_transient() => {
                            tracing::error!(%service, %error, "its pods cannot leave nodes that they should: fix the key");
                        }
                        result => result?,
                    }
                }
                Ok(())
            }
        }
    }

    async fn plan(&self, name: &ServiceName, violations: Vec<MisplacedPod>) -> Result<(), StoreError> {
        let Some(service) = self.store.service(name).await? else { return Ok(()) };
        let is_planned = |one: &MisplacedPod| service.moves.is_moved(&one.pod.id);
        let mut new: Vec<MisplacedPod> = violations.into_iter().filter(|one| !is_planned(one)).collect();
        new.truncate(MAX_PLANNED);
        let Some(why) = new.first().map(|one| one.why.clone()) else { return Ok(()) };
        let records = new.into_iter().map(|one| one.pod).collect();
        let leaving = plan_leaving(&self.store, &self.policy, self.profile, records).await?;
        let moves = leaving.iter().filter_map(LeavingPod::begun_move).collect();
        begin_moves(&self.store, &service, moves, None, &why).await.map(drop)
    }

    async fn tell(&mut self, held: String) -> Result<(), StoreError> {
        if self.held.as_ref() != Some(&held) {
            self.store.note_condition(ObservedCondition::ViolationsHeld, &held).await?;
            self.held = Some(held);
        }
        Ok(())
    }
}

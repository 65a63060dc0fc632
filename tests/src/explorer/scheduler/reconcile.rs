//! Reconciling: read what is wanted and what is there, then do what the plan says, a call at a time. Meanwhile
//! everything may have changed.

use common::ids::{NodeName, PodId, SchedulerId, ServiceName};
use common::lifecycle::Phase;
use common::pod::PodRecord;
use common::service::{Service, ServiceState};
use common::store::RequeueOutcome;

use super::super::world::World;
use super::Process;

/// Between two looks at one service that nothing asked for.
const PERIOD: u64 = 60;

/// One call that the plan asks for.
pub(super) enum Action {
    Create(Box<Service>, Vec<u32>),
    Stop(Option<ServiceName>, Vec<(PodId, Option<NodeName>)>),
    Forget(Box<Service>),
    Requeue(Box<PodRecord>, Vec<SchedulerId>),
}

/// What is to be done about one service.
fn plan(service: Service, slots: Vec<(u32, Option<PodRecord>)>) -> Vec<Action> {
    let deleting = service.state == ServiceState::Deleting;
    if deleting && slots.is_empty() {
        return vec![Action::Forget(Box::new(service))];
    }
    let missing: Vec<u32> =
        (0..service.replicas).filter(|index| slots.iter().all(|(taken, _)| taken != index)).collect();
    let surplus = slots.into_iter().rev().filter_map(|(index, record)| {
        let record = record?;
        let unwanted = deleting || index >= service.replicas;
        let old = record.generation != service.generation || record.phase == Phase::Stopped;
        (unwanted || old).then_some((record.id, record.node))
    });
    let stop: Vec<_> = surplus.collect();
    let mut actions = Vec::new();
    if !stop.is_empty() {
        actions.push(Action::Stop(Some(service.name.clone()), stop));
    }
    if !missing.is_empty() && !deleting {
        actions.push(Action::Create(Box::new(service), missing));
    }
    actions
}

impl Process {
    pub(super) fn is_reconcile_due(&self, world: &World<'_>) -> bool {
        world.view.services.keys().any(|name| self.is_due(world, name))
    }

    fn is_due(&self, world: &World<'_>, service: &str) -> bool {
        self.reconciled.get(service).is_none_or(|at| world.now > at + PERIOD)
    }

    pub(super) async fn reconcile(&mut self, world: &mut World<'_>) {
        let due: Vec<String> =
            world.view.services.keys().filter(|name| self.is_due(world, name)).cloned().collect();
        let Some(name) = world.random.pick(&due).cloned() else { return };
        let id = ServiceName::new(name.clone()).unwrap();
        let store = world.ground.store.clone();
        let read = async {
            let Some(service) = store.service(&id).await? else { return Ok(None) };
            let slots = store.slots(&id).await?;
            let ids: Vec<PodId> = slots.iter().map(|(_, id)| id.clone()).collect();
            let records = store.pods(&ids).await?;
            Ok(Some((service, slots.into_iter().map(|(index, _)| index).zip(records).collect::<Vec<_>>())))
        };
        let Some(found) = world.call(self.me, format!("read {name} and its pods"), read).await.heard() else {
            return;
        };
        self.reconciled.insert(name, world.now);
        if let Some((service, slots)) = found {
            let actions = plan(service, slots);
            world.note(actions.len());
            self.actions.extend(actions);
        }
    }

    /// Any pod may be suspected to be nowhere.
    pub(super) async fn suspect(&mut self, world: &mut World<'_>) {
        let mut pods: Vec<String> =
            world.view.pods.iter().filter(|(_, pod)| pod.is_live()).map(|(uuid, _)| uuid.clone()).collect();
        pods.sort_by_key(|uuid| world.names.order(uuid));
        let Some(uuid) = world.random.pick(&pods).cloned() else { return };
        let id = PodId::new(uuid).unwrap();
        let store = world.ground.store.clone();
        let read = async {
            let record = store.pod(&id).await?;
            let schedulers = store.schedulers().await?;
            Ok((record, schedulers.into_iter().map(|(id, _)| id).collect::<Vec<_>>()))
        };
        let what = format!("suspect {}", world.names.of(id.as_str()));
        if let Some((Some(record), schedulers)) = world.call(self.me, what, read).await.heard() {
            self.actions.push_back(Action::Requeue(Box::new(record), schedulers));
        }
    }

    pub(super) async fn act(&mut self, world: &mut World<'_>) {
        let Some(action) = self.actions.pop_front() else { return };
        let store = world.ground.store.clone();
        match action {
            Action::Create(service, replicas) => {
                let what =
                    format!("create {replicas:?} of {} generation {}", service.name, service.generation);
                if let Some(outcome) =
                    world.call(self.me, what, store.create_pods(&service, &replicas)).await.heard()
                {
                    world.note(format!("{outcome:?}"));
                }
            }
            Action::Stop(service, pods) => {
                let what = format!("stop {}", world.called(pods.iter().map(|(id, _)| id)));
                let verb = store.stop_pods(service.as_ref(), &pods, "Surplus", "not wanted");
                if let Some(outcomes) = world.call(self.me, what, verb).await.heard() {
                    world.note(format!("{outcomes:?}"));
                }
            }
            Action::Forget(service) => {
                let what = format!("forget {}", service.name);
                if let Some(done) = world.call(self.me, what, store.forget_service(&service)).await.heard() {
                    world.note(done);
                }
            }
            Action::Requeue(record, schedulers) => {
                let what = format!("requeue {} if it is missing", world.names.of(record.id.as_str()));
                let called = world.call(self.me, what, store.requeue_missing(&record, &schedulers)).await;
                if let Some(outcome) = called.heard() {
                    world.note(format!("{outcome:?}"));
                    world.stats.requeued += u64::from(outcome == RequeueOutcome::Queued);
                }
            }
        }
    }
}

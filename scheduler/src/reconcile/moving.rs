//! Which pods of a service move to another node, and which moves are over. Pure.
//!
//! A move is in force while its pod is on a node that is being drained, or that does not satisfy the
//! constraints of its service: `uncordon`, or the right label, ends it at once, whichever scheduler planned
//! it. One of a rebalance is in force for some time. It stays until the replica's next pod is placed, which
//! it tells where to go.

use std::collections::{BTreeMap, HashSet};

use model::ids::PodId;
use model::pod::PodRecord;
use model::service::Service;
use model::service::moves::{Move, Moves};

use super::desired::DesiredSlots;
use super::lost_payload::ObservedState;
use super::slots::{ReplicaSlot, SlotHolder, pods};
use super::violations::constraints;

#[derive(Debug, Default)]
pub(super) struct Moving {
    pods: HashSet<PodId>,
}

impl Moving {
    pub(super) fn of(service: &Service, slots: &[ReplicaSlot], observed: &ObservedState) -> Self {
        let Some(nodes) = observed.nodes.as_ref().filter(|_| !service.moves.is_empty()) else {
            return Self::default();
        };
        let constraints = constraints(service);
        let is_moving = |pod: &PodRecord| {
            let Some((one, node)) = service.moves.of_pod(pod.replica, &pod.id).zip(pod.node.as_ref()) else {
                return false;
            };
            one.until.is_some_and(|until| observed.now < until) || nodes.lets_leave(node, &constraints)
        };
        let moving = pods(slots).filter(|(_, pod)| is_moving(pod));
        Self { pods: moving.map(|(slot, _)| slot.id.clone()).collect() }
    }

    pub(super) fn has(&self, pod: &PodRecord) -> bool {
        self.pods.contains(&pod.id)
    }

    /// `None` if no move is over.
    pub(super) fn left(
        &self,
        service: &Service,
        slots: &[ReplicaSlot],
        desired: DesiredSlots<'_>,
    ) -> Option<Moves> {
        let by_replica = service.moves.by_replica();
        let left: BTreeMap<u32, Move> = by_replica
            .iter()
            .filter(|(replica, one)| desired.has_replica(**replica) && self.goes_on(**replica, one, slots))
            .map(|(replica, one)| (*replica, one.clone()))
            .collect();
        (left.len() < by_replica.len()).then(|| Moves::of(left))
    }

    /// Its pod is there, or the next one has no node yet.
    fn goes_on(&self, replica: u32, one: &Move, slots: &[ReplicaSlot]) -> bool {
        let mut of_replica = slots.iter().filter(|slot| slot.slot.replica == replica).peekable();
        if of_replica.clone().any(|slot| slot.id == one.pod) {
            return self.pods.contains(&one.pod);
        }
        of_replica.peek().is_none()
            || of_replica.any(|slot| match &slot.holder {
                SlotHolder::Pod(pod) => pod.node.is_none(),
                SlotHolder::NoRecord | SlotHolder::Lost | SlotHolder::Void | SlotHolder::Unreadable => true,
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use model::RedisMillis;
    use model::ids::NodeName;
    use model::node::drain::Drain;
    use model::node::{Node, Resources};
    use model::pod::lifecycle::Phase::{self, Assigned, Pending, Running, Stopping};
    use model::service::{RolloutMarks, ServiceState};
    use model::spec::ServiceFields;
    use serde_json::json;
    use testkit::fixtures;

    use super::super::plan::testing::{record, second_slot, service, slot};
    use super::super::plan::{ReconcilePlan, is_replacing, plan};
    use super::super::violations::SeenNodes;
    use super::*;

    const NOW: RedisMillis = 1_000_000;

    /// With its number and node, for a minute.
    fn pod(replica: u32, id: &str, phase: Phase, node: Option<&str>) -> PodRecord {
        let (id, node) = (PodId::new(id).unwrap(), node.map(|node| NodeName::new(node).unwrap()));
        let at = NOW - 60_000;
        let ready_since = (phase == Running).then_some(at);
        PodRecord { id, node, since: at, created_at: at, ready_since, ..record("web", replica, 2, phase) }
    }

    fn moved(replicas: u32, moves: &[(u32, &str)], policy: Option<&str>) -> Service {
        let one = |(replica, id): &(u32, &str)| {
            let to = NodeName::new("w2").unwrap();
            (*replica, Move { pod: PodId::new(*id).unwrap(), to, until: None })
        };
        let update = policy.map(|json| serde_json::from_str(json).unwrap());
        Service {
            moves: Moves::of(moves.iter().map(one).collect()),
            fields: ServiceFields { update, ..Default::default() },
            rollout: RolloutMarks { is_settled: true, ..Default::default() },
            ..service(replicas, 2, ServiceState::Active)
        }
    }

    fn planned(service: &Service, slots: &[ReplicaSlot], draining: &[&str]) -> ReconcilePlan {
        let nodes: Vec<Node> = draining.iter().map(|name| drained(name)).collect();
        planned_on(service, slots, &nodes)
    }

    fn drained(name: &str) -> Node {
        let drain = Drain::from_stored(r#"{"id": "d", "at": 0}"#);
        assert!(drain.is_some());
        Node { drain, ..fixtures::node(name, Resources::default()) }
    }

    fn planned_on(service: &Service, slots: &[ReplicaSlot], nodes: &[Node]) -> ReconcilePlan {
        let nodes = Some(Arc::new(SeenNodes::of(nodes)));
        let observed = ObservedState { now: NOW, nodes, ..ObservedState::default() };
        plan(service, slots, &observed)
    }

    /// Pods to stop, replace and create, and the number of moves that are left if some are over.
    fn said(plan: &ReconcilePlan) -> String {
        let stop = plan.stop.iter().map(|stop| format!("stop {} {:?}", stop.id, stop.reason));
        let replace = plan.replace.iter().map(|pod| match &pod.successor {
            Some(successor) => format!("{} by {successor}", pod.id),
            None => format!("replace {}", pod.id),
        });
        let successors = plan.successors.iter().map(|replica| format!("create {replica}+"));
        let create = plan.create.iter().map(|replica| format!("create {replica}"));
        let left = plan.moves.iter().map(|moves| format!("left {}", moves.by_replica().len()));
        let all = stop.chain(replace).chain(successors).chain(create).chain(left);
        all.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_pod_moves_when_its_successor_serves_elsewhere() {
        let on_w1 = |replica, id| slot(pod(replica, id, Running, Some("w1")));
        let next = |phase, node| second_slot(pod(1, "n", phase, node));
        let service = moved(2, &[(0, "a"), (1, "b")], None);
        for (slots, expected, case) in [
            (vec![on_w1(0, "a"), on_w1(1, "b")], "create 1+", "one at a time, the highest first"),
            (vec![on_w1(0, "a"), on_w1(1, "b"), next(Pending, None)], "", "it waits for a node"),
            (vec![on_w1(0, "a"), on_w1(1, "b"), next(Assigned, Some("w2"))], "", "it starts"),
            (vec![on_w1(0, "a"), on_w1(1, "b"), next(Running, Some("w2"))], "b by n", "it serves"),
            (
                vec![
                    on_w1(0, "a"),
                    slot(pod(1, "b", Stopping, Some("w1"))),
                    second_slot(pod(1, "n", Running, Some("w2"))),
                ],
                "stop b AlreadyStopping",
                "the former one still ends",
            ),
            (
                vec![on_w1(0, "a"), slot(pod(1, "n", Running, Some("w2")))],
                "create 0+, left 1",
                "the next one",
            ),
            (
                vec![slot(pod(0, "a", Assigned, Some("w1"))), on_w1(1, "b")],
                "stop a Moved, create 1+",
                "one that does not serve goes at once",
            ),
        ] {
            assert_eq!(said(&planned(&service, &slots, &["w1"])), expected, "{case}");
        }
        assert!(is_replacing(&service, &[on_w1(0, "a"), on_w1(1, "b")]));
    }

    #[test]
    fn a_pod_that_cannot_run_twice_is_stopped_first_and_its_target_is_kept_until_the_next_is_placed() {
        let service = moved(1, &[(0, "a")], Some(r#"{"order": "stop-first", "monitor": 0}"#));
        for (slots, expected) in [
            (vec![slot(pod(0, "a", Running, Some("w1")))], "replace a"),
            (vec![slot(pod(0, "a", Stopping, Some("w1")))], "stop a AlreadyStopping"),
            (vec![], "create 0"),
            (vec![slot(pod(0, "n", Pending, None))], ""),
            (vec![slot(pod(0, "n", Assigned, Some("w2")))], "left 0"),
        ] {
            assert_eq!(said(&planned(&service, &slots, &["w1"])), expected, "{slots:?}");
        }
    }

    #[test]
    fn a_move_leaves_as_many_in_service_as_the_service_asks() {
        let all: Vec<ReplicaSlot> =
            (0..4).map(|replica| slot(pod(replica, &format!("p{replica}"), Running, Some("w1")))).collect();
        let ids: Vec<String> = all.iter().map(|slot| slot.id.to_string()).collect();
        let moves: Vec<(u32, &str)> = (0..).zip(ids.iter().map(String::as_str)).collect();
        for (order, least, expected) in [
            ("stop-first", json!("75%"), "replace p3"),
            ("stop-first", json!(2), "replace p3, replace p2"),
            ("stop-first", json!(4), ""),
            ("stop-first", json!("100%"), ""),
            ("start-first", json!(4), "create 3+, create 2+, create 1+, create 0+"),
        ] {
            let policy = json!({"order": order, "parallelism": 0, "monitor": 0}).to_string();
            let mut service = moved(4, &moves, Some(&policy));
            service.fields.min_available = Some(serde_json::from_value(least.clone()).unwrap());
            assert_eq!(said(&planned(&service, &all, &["w1"])), expected, "{order} {least}");
            service.generation += 1;
            service.spec_id = super::super::plan::testing::service(4, 3, ServiceState::Active).spec_id;
            service.rollout.is_settled = false;
            assert_ne!(said(&planned(&service, &all, &["w1"])), "", "an update has its own limits");
        }
    }

    #[test]
    fn a_move_ends_with_its_drain_and_no_pod_is_lost() {
        let both = [slot(pod(0, "a", Running, Some("w1"))), second_slot(pod(0, "n", Pending, None))];
        let service = moved(1, &[(0, "a")], None);
        assert_eq!(said(&planned(&service, &both, &[])), "stop n Surplus, left 0");
        assert_eq!(said(&planned(&service, &both[..1], &[])), "left 0");
        assert_eq!(said(&planned(&service, &both[..1], &["w3"])), "left 0", "it is on another node");
        let scaled = moved(0, &[(0, "a")], None);
        assert_eq!(said(&planned(&scaled, &both[..1], &["w1"])), "stop a ScaledDown, left 0");
        let unread = ObservedState { now: NOW, ..ObservedState::default() };
        let of_unknown = plan(&service, &both[..1], &unread);
        assert!(of_unknown.stop.is_empty() && of_unknown.successors.is_empty());
    }

    #[test]
    fn a_move_from_a_node_that_violates_a_constraint_ends_with_the_right_label() {
        let slots = [slot(pod(0, "a", Running, Some("w1")))];
        let mut service = moved(1, &[(0, "a")], None);
        let placement = json!({"constraints": ["zone == a"]});
        service.fields.placement = Some(serde_json::from_value(placement).unwrap());
        for (zone, expected) in [("b", "create 0+"), ("a", "left 0")] {
            let mut node = fixtures::node("w1", Resources::default());
            node.facts.labels.insert("zone".to_owned(), zone.to_owned());
            assert_eq!(said(&planned_on(&service, &slots, &[node])), expected, "{zone}");
        }
    }

    #[test]
    fn a_move_of_a_rebalance_is_in_force_for_its_time() {
        let slots = [slot(pod(0, "a", Running, Some("w1")))];
        for (until, expected) in [(NOW + 1, "create 0+"), (NOW, "left 0")] {
            let mut service = moved(1, &[(0, "a")], None);
            let moves = service.moves.by_replica().clone().into_iter();
            let until = Some(until);
            service.moves = Moves::of(moves.map(|(replica, one)| (replica, Move { until, ..one })).collect());
            assert_eq!(said(&planned(&service, &slots, &[])), expected, "{until:?}");
        }
    }

    #[test]
    fn while_a_rollout_is_paused_only_pods_of_its_generation_move() {
        let old = PodRecord { generation: 1, spec: None, ..pod(0, "a", Running, Some("w1")) };
        let slots = [slot(old), slot(pod(1, "b", Running, Some("w1")))];
        let mut service = moved(2, &[(0, "a"), (1, "b")], None);
        service.rollout.paused = Some("by hand".to_owned());
        assert_eq!(said(&planned(&service, &slots, &["w1"])), "create 1+");
        assert_eq!(said(&planned(&service, &slots[..1], &["w1"])), "create 1");
    }
}

//! Pods whose node no longer satisfies the constraints of their service: which of them move, and when. Pure.
//!
//! A slip with a label must move nothing: a violation has to last, and while many pods violate at once none
//! moves. Rules that count pods are judged when a pod is placed, and never here.
//!
//! Tests: beside the code, tests::violations

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use model::ids::{NodeName, PodId, ServiceName};
use model::node::Node;
use model::node::labels::Labels;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase;
use model::service::{Service, ServiceState};
use model::spec::NodeConstraint;

use super::slots::{ReplicaSlot, pods};

/// Fewer never hold anything up.
const MIN_MASS: usize = 3;
const MAX_PERCENT: usize = 30;
const MAX_EXAMPLES: usize = 3;

/// Of the nodes that pods run on, as far as it decides whether these have to leave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SeenNodes {
    draining: HashSet<NodeName>,
    labels: HashMap<NodeName, Labels>,
}

impl SeenNodes {
    pub(crate) fn of(nodes: &[Node]) -> Self {
        let draining = nodes.iter().filter(|node| node.drain.is_some()).map(|node| node.name.clone());
        let labels = nodes.iter().map(|node| (node.name.clone(), node.facts.labels.clone()));
        Self { draining: draining.collect(), labels: labels.collect() }
    }

    /// Whether moves of this service's pods from the node are in force.
    pub(super) fn lets_leave(&self, node: &NodeName, constraints: &[NodeConstraint]) -> bool {
        self.draining.contains(node) || self.violated(node, constraints).is_some()
    }

    fn violated<'a>(&self, node: &NodeName, constraints: &'a [NodeConstraint]) -> Option<&'a NodeConstraint> {
        let labels = self.labels.get(node)?;
        constraints.iter().find(|constraint| !constraint.holds(node, labels))
    }
}

pub(super) fn constraints(service: &Service) -> Vec<NodeConstraint> {
    let texts = service.fields.placement.iter().flat_map(|rules| &rules.constraints);
    texts.map(|text| NodeConstraint::from_stored(text)).collect()
}

#[derive(Debug, Clone)]
pub(crate) struct MisplacedPod {
    pub(crate) pod: PodRecord,
    /// `w1 has zone=b, but the service needs zone == a`
    pub(crate) why: String,
}

/// Found in a full pass.
#[derive(Debug, Default)]
pub(crate) struct FoundViolations {
    /// That could violate something: they run, or are about to.
    pods: usize,
    by_service: BTreeMap<ServiceName, Vec<MisplacedPod>>,
}

impl FoundViolations {
    pub(crate) fn add(&mut self, service: &Service, slots: &[ReplicaSlot], nodes: &SeenNodes) {
        let placed = |pod: &PodRecord| matches!(pod.phase, Phase::Assigned | Phase::Running);
        let here = pods(slots).filter(|(_, pod)| placed(pod));
        let constraints = constraints(service);
        let is_looked_after = !service.kind().is_service() || service.is_global();
        if constraints.is_empty() || is_looked_after || service.state != ServiceState::Active {
            self.pods += here.count();
            return;
        }
        let mut judged: HashMap<&NodeName, Option<String>> = HashMap::new();
        let mut found = Vec::new();
        for (_, pod) in here {
            self.pods += 1;
            let Some(node) = &pod.node else { continue };
            let why = judged.entry(node).or_insert_with(|| {
                let violated = nodes.violated(node, &constraints)?;
                Some(format!("{node} {}", violated.explain(&nodes.labels[node])))
            });
            found.extend(why.clone().map(|why| MisplacedPod { pod: pod.clone(), why }));
        }
        if !found.is_empty() {
            self.by_service.insert(service.name.clone(), found);
        }
    }

    fn count(&self) -> usize {
        self.by_service.values().map(Vec::len).sum()
    }

    fn held(&self) -> Option<String> {
        let (count, pods) = (self.count(), self.pods);
        if count < MIN_MASS || count * 100 <= pods * MAX_PERCENT {
            return None;
        }
        let mut reasons: Vec<String> = Vec::new();
        for (service, found) in &self.by_service {
            let whys = found.iter().map(|one| format!("{service}: {}", one.why));
            reasons.extend(whys);
        }
        reasons.dedup();
        let more = reasons.len().saturating_sub(MAX_EXAMPLES);
        reasons.truncate(MAX_EXAMPLES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Some(format!(
            "{count} of {pods} pods are on nodes that no longer satisfy the constraints of their services, which looks \
             like a slip: none is moved ({}{more}); correct the labels with `kubeleet node label`, or the constraints; \
             if it is meant, `kubeleet service restart` places the pods anew",
            reasons.join("; ")
        ))
    }
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Move(BTreeMap<ServiceName, Vec<MisplacedPod>>),
    /// Too many at once: in words.
    Hold(String),
}

/// Since when each pod violates, as this scheduler has seen it: another one begins anew.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    since: HashMap<PodId, Instant>,
}

impl Violations {
    pub(crate) fn judge(&mut self, mut found: FoundViolations, lasting: Duration, now: Instant) -> Verdict {
        let seen: HashSet<&PodId> = found.by_service.values().flatten().map(|one| &one.pod.id).collect();
        self.since.retain(|id, _| seen.contains(id));
        for id in seen {
            self.since.entry(id.clone()).or_insert(now);
        }
        if let Some(held) = found.held() {
            // After a slip was corrected in part, the rest has its time again.
            self.since.clear();
            return Verdict::Hold(held);
        }
        let lasts = |one: &MisplacedPod| now.duration_since(self.since[&one.pod.id]) >= lasting;
        for violations in found.by_service.values_mut() {
            violations.retain(lasts);
        }
        found.by_service.retain(|_, violations| !violations.is_empty());
        Verdict::Move(found.by_service)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::node::Resources;
    use model::spec::ServiceFields;
    use serde_json::json;
    use testkit::fixtures;

    use super::super::plan::testing::{record, service, slot};
    use super::*;

    const LASTING: Duration = Duration::from_secs(60);

    fn nodes(labels: &[(&str, &str)]) -> SeenNodes {
        let node = |(name, zone): &(&str, &str)| {
            let mut node = fixtures::node(name, Resources::default());
            node.facts.labels = Labels::from([("zone".to_owned(), (*zone).to_owned())]);
            node
        };
        SeenNodes::of(&labels.iter().map(node).collect::<Vec<_>>())
    }

    fn constrained(constraint: &str) -> Service {
        let placement = serde_json::from_value(json!({"constraints": [constraint]})).unwrap();
        let fields = ServiceFields { placement: Some(placement), ..Default::default() };
        Service { fields, ..service(4, 2, ServiceState::Active) }
    }

    fn on(replica: u32, node: &str, phase: Phase) -> ReplicaSlot {
        let id = PodId::new(format!("p{replica}")).unwrap();
        slot(PodRecord { id, node: Some(NodeName::new(node).unwrap()), ..record("web", replica, 2, phase) })
    }

    fn found(pods: usize, service: &Service, slots: &[ReplicaSlot], nodes: &SeenNodes) -> FoundViolations {
        let mut found = FoundViolations { pods, ..Default::default() };
        found.add(service, slots, nodes);
        found
    }

    fn moved(verdict: Verdict) -> Vec<String> {
        let Verdict::Move(by_service) = verdict else { panic!("{verdict:?}") };
        by_service.into_values().flatten().map(|one| format!("{} {}", one.pod.id, one.why)).collect()
    }

    #[test]
    fn a_violation_that_lasts_moves_the_pod_and_a_corrected_one_begins_anew() {
        let service = constrained("zone == a");
        let slots = [on(0, "w1", Phase::Running), on(1, "w2", Phase::Running), on(2, "w2", Phase::Stopping)];
        let (wrong, right) = (nodes(&[("w1", "a"), ("w2", "b")]), nodes(&[("w1", "a"), ("w2", "a")]));
        let (begin, mut violations) = (Instant::now(), Violations::default());
        let mut judge = |nodes: &SeenNodes, seconds| {
            let now = begin + Duration::from_secs(seconds);
            moved(violations.judge(found(20, &service, &slots, nodes), LASTING, now))
        };
        assert!(judge(&wrong, 0).is_empty());
        assert!(judge(&wrong, 59).is_empty());
        assert_eq!(judge(&wrong, 60), ["p1 w2 has zone=b, but the service needs zone == a"]);
        assert!(judge(&right, 61).is_empty());
        assert!(judge(&wrong, 62).is_empty(), "it was corrected meanwhile");
        assert_eq!(judge(&wrong, 122).len(), 1);
        assert!(judge(&nodes(&[("w1", "a")]), 200).is_empty(), "of an unknown node nothing is known");
    }

    #[test]
    fn many_violations_at_once_move_nothing_and_say_why() {
        let service = constrained("zone == a");
        let slots: Vec<ReplicaSlot> = (0..4).map(|replica| on(replica, "w1", Phase::Running)).collect();
        let wrong = nodes(&[("w1", "b")]);
        let (begin, mut violations) = (Instant::now(), Violations::default());
        for (others, is_held) in [(0, true), (9, true), (10, false), (1000, false)] {
            let verdict = violations.judge(found(others, &service, &slots, &wrong), LASTING, begin);
            match verdict {
                Verdict::Hold(why) => {
                    assert!(is_held, "{others}");
                    let expected = format!("4 of {} pods are on nodes", others + 4);
                    assert!(why.starts_with(&expected) && why.contains("(web: w1 has zone=b"), "{why}");
                }
                Verdict::Move(_) => assert!(!is_held, "{others}"),
            }
        }
        let two = found(0, &service, &slots[..2], &wrong);
        assert!(matches!(violations.judge(two, LASTING, begin), Verdict::Move(_)), "two are no mass");
    }

    #[test]
    fn only_pods_of_services_with_constraints_violate() {
        let slots = [on(0, "w1", Phase::Running)];
        let wrong = nodes(&[("w1", "b")]);
        let deleted = Service { state: ServiceState::Deleting, ..constrained("zone == a") };
        for service in [service(1, 2, ServiceState::Active), deleted] {
            let found = found(0, &service, &slots, &wrong);
            assert_eq!((found.pods, found.count()), (1, 0));
        }
    }
}

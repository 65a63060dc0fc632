#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use model::node::Resources;
use model::pod::PodRecord;
use model::pod::lifecycle::Phase::{self, Assigned, Failed, Pending, Running, Stopping};
use model::pod::slot::Slot;
use model::service::ServiceState;
use model::spec::{Mode, ServiceFields};
use proptest::prelude::*;
use testkit::fixtures;

use super::super::lost_payload::ObservedState;
use super::super::model::{Slots, apply, read, vacate};
use super::super::plan::testing::{checked, record, service, slot};
use super::super::plan::{is_replacing, plan as plan_pods};
use super::super::rollout::RolloutStep;
use super::super::slots::StopReason;
use super::*;

const OPEN: SeenNode = SeenNode::Readable(Standing::Open);
const CORDONED: SeenNode = SeenNode::Readable(Standing::Closed);
const OUT: SeenNode = SeenNode::Readable(Standing::Out);

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn pod_on(number: u32, phase: Phase, on: &str) -> PodRecord {
    PodRecord { node: (!on.is_empty()).then(|| node(on)), ..record("agent", number, 1, phase) }
}

fn global(members: Members) -> Service {
    let mut service = service(members.slots(), 1, ServiceState::Active);
    service.pod.mode = Mode::Global;
    service.members = members;
    service
}

/// Words such as `0 w1`, `1 w2 closed` and `2 w3 out`.
fn words(members: &Members) -> Vec<String> {
    let word = |(number, Member { node, standing }): (&u32, &Member)| match standing {
        Standing::Open => format!("{number} {node}"),
        Standing::Closed => format!("{number} {node} closed"),
        Standing::Out => format!("{number} {node} out"),
    };
    members.by_number().iter().map(word).collect()
}

fn members(of: &[(u32, &str)]) -> Members {
    let open =
        |(number, name): &(u32, &str)| (*number, Member { node: node(name), standing: Standing::Open });
    Members::of(of.iter().map(open).collect())
}

#[test]
fn each_eligible_node_has_a_number_and_keeps_it_until_it_is_removed() {
    type Pods = &'static [(u32, Phase, &'static str)];
    for (before, pods, nodes, expected, case) in [
        (&[][..], &[][..] as Pods, &[("w2", OPEN), ("w1", OPEN)][..], &["0 w1", "1 w2"][..], "by name"),
        (&[(1, "w1")], &[], &[("w0", OPEN), ("w1", OPEN)], &["0 w0", "1 w1"], "the lowest free one"),
        (&[(0, "w1"), (1, "w2")], &[], &[("w1", OUT), ("w2", OPEN)], &["0 w1 out", "1 w2"], "dead"),
        (&[(0, "w1")], &[(0, Running, "w1")], &[("w1", CORDONED)], &["0 w1 closed"], "it keeps its pod"),
        (&[(0, "w1")], &[(0, Pending, "")], &[("w1", CORDONED)], &["0 w1 out"], "it gets no new one"),
        (&[(0, "w1")], &[(0, Stopping, "w1")], &[("w1", CORDONED)], &["0 w1 out"], "its pod was stopped"),
        (&[], &[], &[("w1", CORDONED), ("w2", OUT)], &[], "neither had one"),
        (&[(0, "w1")], &[], &[("w1", SeenNode::Missing), ("w2", OPEN)], &["0 w2"], "removed"),
        (
            &[(0, "w1")],
            &[(0, Pending, "")],
            &[("w1", SeenNode::Missing), ("w2", OPEN)],
            &["0 w1 out", "1 w2"],
            "its pod still has the slot",
        ),
        (
            &[(0, "w1")],
            &[(0, Running, "w1")],
            &[("w1", SeenNode::Missing)],
            &["0 w1 closed"],
            "its record is lost, and its pod runs",
        ),
        (&[(0, "w1")], &[], &[("w1", SeenNode::Unreadable)], &["0 w1 out"], "unreadable"),
        (
            &[],
            &[(3, Running, "w1"), (4, Failed, "w2"), (5, Pending, "")],
            &[("w1", OPEN), ("w2", OPEN), ("w3", OPEN)],
            &["0 w3", "3 w1", "4 w2"],
            "lost members are those of the pods",
        ),
        (
            &[],
            &[(3, Running, "w1"), (4, Running, "w1")],
            &[("w1", OPEN)],
            &["3 w1"],
            "two pods on one node: the lower number stays",
        ),
    ] {
        let slots: Vec<ReplicaSlot> =
            pods.iter().map(|(number, phase, on)| slot(pod_on(*number, *phase, on))).collect();
        let nodes = nodes.iter().map(|(name, seen)| (node(name), *seen)).collect();
        let after = plan(&members(before), &slots, &nodes, &DataPlaces::new());
        assert_eq!(words(&after), expected, "{case}");
        assert_eq!(plan(&after, &slots, &nodes, &DataPlaces::new()), after, "{case}: again");
    }
}

#[test]
fn a_new_node_gets_the_number_of_its_data_and_none_whose_data_is_elsewhere() {
    let nodes = ["w1", "w2", "w3"].map(|name| (node(name), OPEN)).into();
    let data = BTreeMap::from([(0, node("w2")), (1, node("gone")), (2, node("w3"))]);
    let found = plan(&members(&[(4, "w3")]), &[], &nodes, &data);
    assert_eq!(words(&found), ["0 w2", "3 w1", "4 w3"]);
}

#[test]
fn a_node_is_eligible_if_it_lives_and_satisfies_the_constraints() {
    let placement = serde_json::from_value(serde_json::json!({"constraints": ["disk == ssd"]})).unwrap();
    let rules = NodeRules::of(&placement);
    let with = |change: fn(&mut Node)| {
        let mut node = fixtures::node("w1", Resources::default());
        node.facts.labels.insert("disk".to_owned(), "ssd".to_owned());
        change(&mut node);
        standing(&node, rules.as_deref())
    };
    assert_eq!(with(|_| {}), Standing::Open);
    assert_eq!(with(|node| node.cordoned = true), Standing::Closed);
    assert_eq!(with(|node| node.state = NodeState::Dead), Standing::Out);
    assert_eq!(with(|node| node.kind = NodeKind::External), Standing::Out);
    assert_eq!(with(|node| node.facts.labels.clear()), Standing::Out);
    let problem = with(|node| node.engine_problem = Some("it hangs".to_owned()));
    assert_eq!(problem, Standing::Open, "its pod waits");
}

#[test]
fn what_comes_and_goes_is_told() {
    let told = |before: &[(u32, &str)], after: &[(u32, &str)]| news(&members(before), &members(after));
    assert_eq!(told(&[(0, "w1")], &[(0, "w1")]), None);
    assert_eq!(told(&[(0, "w1")], &[(1, "w2")]).unwrap(), "a pod is wanted on w2; none any more on w1");
    let many: Vec<String> = (10..17).map(|number| format!("w{number}")).collect();
    let many: Vec<(u32, &str)> = (0..).zip(many.iter().map(String::as_str)).collect();
    assert_eq!(told(&[], &many).unwrap(), "a pod is wanted on w10, w11, w12, w13, w14 and 2 more");
}

#[test]
fn pods_follow_the_nodes() {
    let closed = |mut of: Members| {
        let mut by_number = std::mem::take(&mut of).by_number().clone();
        by_number.get_mut(&1).unwrap().standing = Standing::Closed;
        Members::of(by_number)
    };
    let service = global(members(&[(0, "w1"), (2, "w3")]));
    let slots =
        [slot(pod_on(0, Running, "w1")), slot(pod_on(1, Running, "w2")), slot(pod_on(3, Pending, ""))];
    let plan = plan_pods(&service, &slots, &ObservedState::default());
    assert_eq!(plan.create, [2]);
    let stopped: Vec<_> = plan.stop.iter().map(|stop| (stop.replica, stop.reason)).collect();
    assert_eq!(stopped, [(3, StopReason::NodeLeft), (1, StopReason::NodeLeft)]);
    let elsewhere = [slot(pod_on(0, Running, "w9")), slot(pod_on(2, Running, "w3"))];
    let plan = plan_pods(&service, &elsewhere, &ObservedState::default());
    assert_eq!(
        (plan.create.len(), plan.stop[0].replica),
        (0, 0),
        "a pod on another node than that of its number"
    );

    let mut service = global(closed(members(&[(0, "w1"), (1, "w2")])));
    (service.generation, service.replicas) = (2, 2);
    service.spec_id = super::super::plan::testing::service(1, 2, ServiceState::Active).spec_id;
    let mut slots = [slot(pod_on(0, Running, "w1")), slot(pod_on(1, Running, "w2"))];
    let plan = plan_pods(&service, &slots, &ObservedState::default());
    assert_eq!((plan.replace.len(), plan.replace[0].node.as_str()), (1, "w1"), "w2 is cordoned");
    assert_eq!(plan.held.unwrap(), "w2 is cordoned: its pod is replaced after `kubeleet uncordon w2`");
    slots[1] = slot(pod_on(1, Assigned, "w2"));
    let plan = plan_pods(&service, &slots, &ObservedState::default());
    assert!(plan.stop.is_empty(), "although it does not serve");
    assert!(is_replacing(&service, &slots));
}

#[test]
fn a_service_without_an_eligible_node_is_complete() {
    let service = global(Members::of(BTreeMap::new()));
    assert_eq!((service.wanted_pods(), service.first_replicas()), (0, vec![]));
    assert!(plan_pods(&service, &[], &ObservedState::default()).is_complete());
    assert!(!is_replacing(&service, &[]));
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Join,
    Remove,
    Die,
    Live,
    Cordon,
    Uncordon,
    Rule(bool),
    Update,
    Reconcile,
    Advance,
}

/// A node; `None` if it was removed or has never been there.
#[derive(Debug, Clone, Copy)]
struct ModelNode {
    is_alive: bool,
    is_cordoned: bool,
    is_ruled_out: bool,
}

struct Cluster {
    nodes: BTreeMap<NodeName, ModelNode>,
    slots: Slots,
    service: Service,
    /// Of nodes that were not removed since.
    numbers: BTreeMap<NodeName, u32>,
    data: DataPlaces,
}

impl Cluster {
    fn new(data: DataPlaces) -> Self {
        let mut service = checked(global(Members::default()));
        let update = serde_json::from_str(r#"{"monitor": 0, "parallelism": 2}"#).unwrap();
        service.fields = ServiceFields { update: Some(update), ..ServiceFields::default() };
        Self { nodes: BTreeMap::new(), slots: Slots::new(), service, numbers: BTreeMap::new(), data }
    }

    fn seen(&self) -> BTreeMap<NodeName, SeenNode> {
        let of_members = self.service.members.by_number().values().map(|member| &member.node);
        let names: BTreeSet<&NodeName> = self.nodes.keys().chain(of_members).collect();
        let seen = |name: &NodeName| match self.nodes.get(name) {
            None => SeenNode::Missing,
            Some(node) if !node.is_alive || node.is_ruled_out => OUT,
            Some(node) if node.is_cordoned => CORDONED,
            Some(_) => OPEN,
        };
        names.into_iter().map(|name| (name.clone(), seen(name))).collect()
    }

    fn on(&self, name: &NodeName) -> Vec<&PodRecord> {
        self.slots.values().flatten().filter(|pod| pod.node.as_ref() == Some(name)).collect()
    }

    /// Returns true if something has changed.
    fn reconcile(&mut self) -> bool {
        let before = self.service.members.clone();
        self.service.members = plan(&before, &read(&self.slots), &self.seen(), &self.data);
        self.service.replicas = self.service.members.slots();
        let of_nodes = self.service.members.by_number().iter();
        for (number, member) in of_nodes.filter(|(_, one)| self.nodes.contains_key(&one.node)) {
            let known = *self.numbers.entry(member.node.clone()).or_insert(*number);
            assert_eq!(known, *number, "the number of {} has changed", member.node);
            let on = self.data.get(number);
            assert!(on.is_none_or(|on| *on == member.node), "{number} has its data on {on:?}");
        }
        let plan = plan_pods(&self.service, &read(&self.slots), &ObservedState::default());
        apply(&self.service, &plan, &mut self.slots);
        if plan.rollout == Some(RolloutStep::Settle) {
            self.service.rollout.is_settled = true;
        }
        !plan.is_complete() || before != self.service.members
    }

    fn change(&mut self, change: Change, name: NodeName, one: prop::sample::Index) {
        let is_empty = self.on(&name).is_empty();
        let node = self.nodes.get_mut(&name);
        match (change, node) {
            (Change::Join, None) => {
                let new = ModelNode { is_alive: true, is_cordoned: false, is_ruled_out: false };
                self.nodes.insert(name, new);
            }
            (Change::Remove, Some(node)) if !node.is_alive && is_empty => {
                self.nodes.remove(&name);
                self.numbers.remove(&name);
            }
            (Change::Die, Some(node)) => {
                node.is_alive = false;
                self.requeue(&name);
            }
            (Change::Live, Some(node)) => node.is_alive = true,
            (Change::Cordon, Some(node)) => node.is_cordoned = true,
            (Change::Uncordon, Some(node)) => node.is_cordoned = false,
            (Change::Rule(is_ruled_out), Some(node)) => node.is_ruled_out = is_ruled_out,
            (Change::Update, _) => {
                self.service.generation += 1;
                self.service.rollout.is_settled = false;
                let generation = self.service.generation;
                self.service.spec_id =
                    super::super::plan::testing::service(1, generation, ServiceState::Active).spec_id;
            }
            (Change::Reconcile, _) => drop(self.reconcile()),
            (Change::Advance, _) if !self.slots.is_empty() => {
                let slots: Vec<Slot> = self.slots.keys().copied().collect();
                self.advance(slots[one.index(slots.len())]);
            }
            _ => {}
        }
    }

    /// Payloads of a dead node return to the queue.
    fn requeue(&mut self, name: &NodeName) {
        let there = |pod: &&mut PodRecord| pod.node.as_ref() == Some(name);
        let mut ended = Vec::new();
        for pod in self.slots.values_mut().flatten().filter(there) {
            match pod.phase {
                Stopping => ended.push(Slot::first(pod.replica)),
                _ => (pod.phase, pod.node) = (Pending, None),
            }
        }
        ended.into_iter().for_each(|slot| vacate(slot, &mut self.slots));
    }

    /// Only a node that takes pods gets one, and only that of the number.
    fn advance(&mut self, slot: Slot) {
        let nodes = &self.nodes;
        let wanted = self.service.members.wanted_on(slot.replica).filter(|name| {
            nodes.get(*name).is_some_and(|node| node.is_alive && !node.is_cordoned && !node.is_ruled_out)
        });
        let Some(Some(pod)) = self.slots.get_mut(&slot) else { return };
        match (pod.phase, wanted) {
            (Pending, Some(wanted)) => (pod.phase, pod.node) = (Assigned, Some(wanted.clone())),
            (Assigned, _) => pod.phase = Running,
            (Stopping, _) => vacate(slot, &mut self.slots),
            _ => {}
        }
    }
}

fn any_node() -> impl Strategy<Value = NodeName> {
    (0..6u32).prop_map(|name| node(&format!("w{name}")))
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => Just(Change::Join),
        1 => Just(Change::Remove),
        1 => Just(Change::Die),
        2 => Just(Change::Live),
        1 => Just(Change::Cordon),
        2 => Just(Change::Uncordon),
        1 => Just(Change::Rule(true)),
        1 => Just(Change::Rule(false)),
        1 => Just(Change::Update),
        8 => Just(Change::Reconcile),
        12 => Just(Change::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn at_rest_there_is_one_pod_on_each_eligible_node_and_never_are_two(
        data in prop::collection::btree_map(0..8u32, any_node(), 0..5),
        changes in prop::collection::vec((any_change(), 0..5u32, any::<prop::sample::Index>()), 0..120),
    ) {
        let mut cluster = Cluster::new(data);
        for (change, name, one) in changes {
            cluster.change(change, node(&format!("w{name}")), one);
            for name in cluster.nodes.keys() {
                prop_assert!(cluster.on(name).len() <= 1, "{name} has {:?}", cluster.on(name));
            }
        }
        for round in 0.. {
            prop_assert!(round < 200, "no rest: {:?}", cluster.slots);
            let is_still = cluster.slots.values().flatten().all(|pod| pod.phase == Running);
            if !cluster.reconcile() && is_still {
                break;
            }
            let slots: Vec<Slot> = cluster.slots.keys().copied().collect();
            slots.into_iter().for_each(|slot| cluster.advance(slot));
        }
        for (name, seen) in cluster.seen() {
            let pods = cluster.on(&name);
            let is_current = pods.iter().all(|pod| pod.generation == cluster.service.generation);
            match seen {
                OPEN => prop_assert!(pods.len() == 1 && is_current, "{name} has {pods:?}"),
                CORDONED => prop_assert!(pods.len() <= 1),
                _ => prop_assert!(pods.is_empty(), "{name} has {pods:?}"),
            }
        }
        let wanted = cluster.service.wanted_pods() as usize;
        prop_assert_eq!(cluster.slots.len(), wanted);
    }
}

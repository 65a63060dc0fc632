//! The smallest change that would let a pod run: each candidate is tried with the filters that decide.
//!
//! In this order: uncordon a node, change its labels, relax a rule that counts, drop a constraint, ask for
//! less, add a node, declare named resources.
//!
//! Tests: beside the code

use std::collections::BTreeMap;
use std::sync::Arc;

use model::RedisMillis;
use model::node::{Node, Resource, Resources};
use model::spec::NodeConstraint;

use crate::amounts::{bytes_rounded_down, cores};
use crate::candidate::Candidate;
use crate::filter::{self, EvalContext, Reason};
use crate::ordinal::BatchOrdinals;
use crate::policy::PlacementPolicy;
use crate::requirements::{NodeRules, PodRequest, Requirements, Target, ZoneChoice};
use crate::rules::RuleState;
use crate::snapshot::ClusterSnapshot;

/// A sentence with the command; `None` if a node fits, or no such change helps.
pub fn suggest(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pod: &PodRequest,
) -> Option<String> {
    let context = EvalContext { now, dead_after: policy.dead_after };
    let needs = BatchOrdinals::default().requirements(pod, snapshot, &context);
    let rules = RuleState::new(snapshot, &needs, pod.generation.as_ref(), &context);
    let trial = Trial { policy, context, needs: &needs, snapshot, rules };
    let is_asked = |node: &&Node| match &pod.target {
        Some(Target::Only(own)) => node.name == *own,
        Some(Target::Nowhere) => false,
        Some(Target::Planned(_)) | None => true,
    };
    let nodes: Vec<&Node> = snapshot.nodes().filter(is_asked).collect();
    if nodes.iter().any(|node| trial.fits(node)) {
        return None;
    }
    let uncordoned = nodes.iter().find_map(|node| trial.uncordon(node));
    let labelled = || nodes.iter().find_map(|node| trial.label(node));
    let needs_its_node = matches!(pod.target, Some(Target::Only(_)));
    let another = || nodes.iter().filter(|_| !needs_its_node).find_map(|node| trial.add_one_like(node));
    let relaxed = || nodes.iter().find_map(|node| trial.relax(node));
    let dropped = || nodes.iter().find_map(|node| trial.drop_constraint(node));
    let lowered = || trial.ask_for_less(&nodes);
    let fewer = || nodes.iter().find_map(|node| trial.ask_for_fewer_ids(node));
    let declared = || nodes.iter().find_map(|node| trial.declare_ids(node));
    let relaxed = uncordoned.or_else(labelled).or_else(relaxed).or_else(dropped);
    relaxed.or_else(lowered).or_else(fewer).or_else(another).or_else(declared)
}

struct Trial<'a> {
    policy: &'a PlacementPolicy,
    context: EvalContext,
    needs: &'a Requirements,
    snapshot: &'a ClusterSnapshot,
    rules: Option<RuleState>,
}

impl Trial<'_> {
    fn fits(&self, node: &Node) -> bool {
        self.fits_with(node, self.needs)
    }

    fn fits_with(&self, node: &Node, needs: &Requirements) -> bool {
        self.passes_filters(node, needs) && self.counted_against(node).is_empty()
    }

    fn passes_filters(&self, node: &Node, needs: &Requirements) -> bool {
        let candidate = Candidate::new(node, &self.policy.weights);
        filter::failed(&candidate, needs, &self.context).next().is_none()
    }

    fn counted_against(&self, node: &Node) -> Vec<Reason> {
        let counted = self.rules.as_ref().zip(self.snapshot.index_of(&node.name));
        let refusals = counted.map(|(rules, index)| rules.refusals(index)).unwrap_or_default();
        refusals.into_iter().map(|(reason, _)| reason).collect()
    }

    /// Where one rule alone is in the way.
    fn relax(&self, node: &Node) -> Option<String> {
        let [reason] = self.counted_against(node)[..] else { return None };
        let rules = self.rules.as_ref().filter(|_| self.passes_filters(node, self.needs))?;
        let rule = rules.relaxed(self.snapshot.index_of(&node.name)?, reason)?;
        Some(format!("{rule} lets it run on {}", node.name))
    }

    /// Where one constraint alone is in the way.
    fn drop_constraint(&self, node: &Node) -> Option<String> {
        let rules = self.needs.rules.as_deref()?;
        let holds = |one: &&NodeConstraint| one.holds(&node.name, &node.facts.labels);
        let (kept, broken): (Vec<_>, Vec<_>) = rules.constraints.iter().partition(holds);
        let [broken] = broken[..] else { return None };
        let rules = NodeRules { constraints: kept.into_iter().cloned().collect(), ..rules.clone() };
        let needs = Requirements { rules: Some(Arc::new(rules)), ..self.needs.clone() };
        let fits = self.fits_with(node, &needs);
        fits.then(|| format!("without the constraint {broken} it runs on {}", node.name))
    }

    fn uncordon(&self, node: &Node) -> Option<String> {
        let changed = Node { cordoned: false, ..node.clone() };
        self.fits(&changed).then(|| format!("`kubeleet uncordon {}` lets it run there", node.name))
    }

    fn label(&self, node: &Node) -> Option<String> {
        let changes = label_changes(node, self.needs);
        let mut changed = node.clone();
        let mut words = Vec::new();
        for (key, value) in changes {
            match value {
                Some(value) => {
                    words.push(format!("{key}={value}"));
                    changed.facts.labels.insert(key, value);
                }
                None => {
                    words.push(format!("{key}-"));
                    changed.facts.labels.remove(&key);
                }
            }
        }
        let command = || format!("`kubeleet node label {} {}` lets it run there", node.name, words.join(" "));
        self.fits(&changed).then(command)
    }

    /// On the node that has the most left.
    fn ask_for_less(&self, nodes: &[&Node]) -> Option<String> {
        let asked = &self.needs.request;
        let lowered = nodes.iter().filter_map(|node| Some((*node, lowered(node, asked)?)));
        let fitting = lowered.filter(|(node, request)| {
            self.fits_with(node, &Requirements { request: *request, ..self.needs.clone() })
        });
        let (node, request) = fitting.max_by_key(|(_, request)| {
            (request.memory_bytes, request.cpu_millis, request.pids, request.disk_bytes)
        })?;
        Some(format!("asking for less lets it run on {}: {}", node.name, difference(asked, &request)))
    }

    fn ask_for_fewer_ids(&self, node: &Node) -> Option<String> {
        let fewer = self.needs.named.as_ref()?.lowered(|name| node.free_ids(name).count() as u64)?;
        let words = format!("asking for {fewer} lets it run on {}", node.name);
        let needs = Requirements { named: Some(Arc::new(fewer)), ..self.needs.clone() };
        self.fits_with(node, &needs).then_some(words)
    }

    /// Where nothing but named resources is missing.
    fn declare_ids(&self, node: &Node) -> Option<String> {
        let named = self.needs.named.as_ref()?;
        let needs = Requirements { named: None, ..self.needs.clone() };
        let words = format!("a node that declares {named} in KUBELEET_RESOURCES lets it run");
        self.fits_with(node, &needs).then_some(words)
    }

    fn add_one_like(&self, node: &Node) -> Option<String> {
        let empty = Node { used: Resources::default(), given_ids: BTreeMap::new(), ..node.clone() };
        let why = "lets it run, for nothing else is missing than room";
        let counted = self.rules.as_ref().zip(self.snapshot.index_of(&node.name));
        let fits = self.passes_filters(&empty, self.needs)
            && counted.is_none_or(|(rules, index)| rules.allows_new_node(index));
        fits.then(|| format!("another node like {} {why}", node.name))
    }
}

/// Of the labels that the constraints name, and a missing zone.
fn label_changes(node: &Node, needs: &Requirements) -> BTreeMap<String, Option<String>> {
    let constraints = needs.rules.iter().flat_map(|rules| &rules.constraints);
    let broken = constraints.filter(|one| !one.holds(&node.name, &node.facts.labels));
    let zone = needs.zone.as_deref().and_then(|zone| match &zone.choice {
        ZoneChoice::Zone(own) if !node.facts.labels.contains_key(&zone.key) => {
            Some((zone.key.clone(), Some(own.clone())))
        }
        ZoneChoice::Zone(_) | ZoneChoice::TooFew { .. } => None,
    });
    broken.filter_map(|one| one.satisfied_by()).chain(zone).collect()
}

/// `None` if the node has nothing left of what is needed.
fn lowered(node: &Node, request: &Resources) -> Option<Resources> {
    let less = |resource: Resource| {
        let needed = request.get(resource);
        let left = needed.min(node.facts.capacity.left(resource, &node.used));
        (needed == 0 || left > 0).then_some(left)
    };
    Some(Resources {
        cpu_millis: less(Resource::Cpu)?,
        memory_bytes: less(Resource::Memory)?,
        pids: less(Resource::Pids)?,
        disk_bytes: less(Resource::Disk)?,
        pods: request.pods,
    })
}

fn difference(asked: &Resources, request: &Resources) -> String {
    let changed = Resource::ALL.into_iter().filter(|resource| asked.get(*resource) != request.get(*resource));
    let amount = |resource: Resource| match resource {
        Resource::Cpu => format!("{} cores", cores(request.cpu_millis)),
        Resource::Memory => format!("{} of memory", bytes_rounded_down(request.memory_bytes)),
        Resource::Pids => format!("{} processes", request.pids),
        Resource::Disk => format!("{} of disk", bytes_rounded_down(request.disk_bytes)),
    };
    changed.map(amount).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::spec::Placement;

    use super::*;
    use crate::testing::{NOW, NodeBuilder, ids, node, pod};

    const GIB: u64 = 1 << 30;

    fn suggestion(nodes: Vec<NodeBuilder>, pod: &PodRequest) -> Option<String> {
        let policy = PlacementPolicy::default();
        let mut snapshot = ClusterSnapshot::new(policy.weights);
        nodes.into_iter().for_each(|node| snapshot.upsert(node.build()));
        suggest(&snapshot, NOW, &policy, pod)
    }

    fn with_rules(constraints: &[&str]) -> PodRequest {
        let constraints = constraints.iter().map(|text| (*text).to_owned()).collect();
        let mut pod = pod(0, 0, 0);
        pod.requirements.rules = NodeRules::of(&Placement { constraints, ..Placement::default() });
        pod
    }

    #[test]
    fn fewer_ids_or_a_node_that_declares_them_are_suggested() {
        let needs = |words: &str| {
            let mut pod = pod(0, 0, 0);
            pod.requirements.named = ids(words);
            pod
        };
        let offers = |declared: &str, given: &[&str]| node("a").offers(declared, given);
        for (node, pod, expected) in [
            (offers("gpu=2", &[]), needs("gpu=2"), None),
            (offers("gpu=2", &["gpu/0"]), needs("gpu=2"), Some("asking for gpu=1 lets it run on a")),
            (
                offers("gpu=2", &["gpu/0", "gpu/1"]),
                needs("gpu=2"),
                Some("another node like a lets it run, for nothing else is missing than room"),
            ),
            (
                offers("slots=2", &[]),
                needs("gpu=1 slots=1"),
                Some("a node that declares gpu=1 slots=1 in KUBELEET_RESOURCES lets it run"),
            ),
        ] {
            assert_eq!(suggestion(vec![node.clone()], &pod).as_deref(), expected, "{node:?}");
        }
    }

    #[test]
    fn the_smallest_change_that_helps_is_named() {
        let cordoned = |name: &str| node(name).with(|n| n.cordoned = true);
        let labelled = |name: &str, key: &str, value: &str| {
            node(name).with(|n| drop(n.facts.labels.insert(key.to_owned(), value.to_owned())))
        };
        let silent = || node("a").with(|n| n.beat = 0);
        for (nodes, pod, expected) in [
            (vec![node("a")], pod(0, 0, 0), None),
            (vec![], pod(0, 0, 0), None),
            (vec![silent()], pod(0, 0, 0), None),
            (vec![silent(), cordoned("b")], pod(0, 0, 0), Some("`kubeleet uncordon b` lets it run there")),
            (
                vec![cordoned("a"), labelled("b", "disk", "hdd")],
                with_rules(&["disk == ssd", "!legacy"]),
                Some("`kubeleet node label b disk=ssd` lets it run there"),
            ),
            (
                vec![labelled("b", "legacy", "1")],
                with_rules(&["gpu", "!legacy"]),
                Some("`kubeleet node label b gpu=true legacy-` lets it run there"),
            ),
            (
                vec![node("a")],
                with_rules(&["node.hostname == b"]),
                Some("without the constraint node.hostname == b it runs on a"),
            ),
            (vec![node("a")], with_rules(&["node.hostname == b", "node.hostname == c"]), None),
            (
                vec![node("a").memory(7 * GIB, 8 * GIB), node("b").memory(6 * GIB, 8 * GIB)],
                pod(0, 0, 4 * GIB),
                Some("asking for less lets it run on b: 2 GiB of memory"),
            ),
            (
                vec![node("a").pods(110, 110)],
                pod(0, 0, 0),
                Some("another node like a lets it run, for nothing else is missing than room"),
            ),
        ] {
            assert_eq!(suggestion(nodes.clone(), &pod).as_deref(), expected, "{nodes:?}");
        }
    }
}

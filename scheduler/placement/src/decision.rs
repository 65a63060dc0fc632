//! Decides about a batch of pods: groups them into classes and places them one by one.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::RedisMillis;
use model::ids::ServiceName;
use model::pod::Refusal;

use crate::batch::PlacementBatch;
use crate::class::PodClass;
use crate::filter::EvalContext;
use crate::ordinal::BatchOrdinals;
use crate::policy::PlacementPolicy;
use crate::record::DecisionRecord;
use crate::requirements::{Generation, PodRequest, Requirements, Target};
use crate::snapshot::{ClusterSnapshot, PlacementTarget, RankKey};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Index in the batch.
    pub pod: usize,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Place(Arc<PlacementTarget>),
    Unschedulable {
        /// Most frequent first; a node counts for each of its reasons. As of the first pod of a class.
        refusals: Arc<[Refusal]>,
    },
}

/// Returns one decision for each pod, in their order. Pure.
///
/// [`ClusterSnapshot::commit`] the assignments that Redis accepts. A snapshot with other weights than the
/// policy is sorted first.
pub fn decide(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[impl Borrow<PodRequest>],
) -> Vec<Decision> {
    decide_and_record(snapshot, now, policy, pods, &[]).0
}

/// Also returns the records of the decisions about the pods with these indices, which ascend. A pod that fits
/// no node has none.
pub fn decide_and_record(
    snapshot: &ClusterSnapshot,
    now: RedisMillis,
    policy: &PlacementPolicy,
    pods: &[impl Borrow<PodRequest>],
    recorded: &[usize],
) -> (Vec<Decision>, Vec<(usize, DecisionRecord)>) {
    let (mut recorded, mut records) = (recorded.iter().peekable(), Vec::new());
    let snapshot = snapshot.ordered_by(policy.weights);
    let context = EvalContext { now, dead_after: policy.dead_after };
    let mut batch = PlacementBatch::new(&snapshot, snapshot.orders(), &policy.weights, context);
    let (mut classes, mut ordinals) = (PodClasses::default(), BatchOrdinals::default());
    let mut decisions = Vec::with_capacity(pods.len());
    for (pod, request) in pods.iter().map(Borrow::borrow).enumerate() {
        let requirements = ordinals.requirements(request, &snapshot, &context);
        let class = classes.of(request, requirements, &snapshot, &mut batch);
        let is_recorded = recorded.next_if(|next| **next == pod).is_some();
        let wanted = request.target.as_ref().and_then(Target::node);
        let observed = is_recorded.then(|| batch.observe(class, wanted));
        let name = request.name();
        let placed = match &request.target {
            None => batch.place(class, name),
            Some(Target::Planned(node)) => {
                batch.place_on(node, class, name).map_or_else(|| batch.place(class, name), Ok)
            }
            Some(Target::Only(node)) => {
                batch.place_on(node, class, name).ok_or_else(|| batch.refusals_on(Some(node), class))
            }
            Some(Target::Nowhere) => Err(batch.refusals_on(None, class)),
        };
        let outcome = match placed {
            Ok(target) => {
                ordinals.note(request, &target, &snapshot);
                let record = observed.map(|seen| {
                    DecisionRecord::new(seen, request, &class.requirements, &target.name, policy, now)
                });
                records.extend(record.map(|record| (pod, record)));
                Outcome::Place(target)
            }
            Err(refusals) => Outcome::Unschedulable { refusals },
        };
        decisions.push(Decision { pod, outcome });
    }
    (decisions, records)
}

#[derive(Default)]
struct PodClasses<'a> {
    classes: Vec<PodClass>,
    by_key: HashMap<ClassKey, usize>,
    groups: HashMap<&'a Generation, usize>,
    /// `None` if the generation's rules neither count nor prefer.
    rules: HashMap<&'a Generation, Option<usize>>,
    /// Of any of its generations.
    rules_of: HashMap<&'a ServiceName, usize>,
    last: Option<(usize, Option<&'a Generation>)>,
}

#[derive(PartialEq, Eq)]
struct ClassKey {
    requirements: Requirements,
    group: Option<usize>,
}

/// Hashing dominates the lookup of a class, by writes.
impl Hash for ClassKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.requirements.hash(state);
        if let Some(group) = self.group {
            state.write_usize(group);
        }
    }
}

impl<'a> PodClasses<'a> {
    fn of<I: Iterator<Item = RankKey>>(
        &mut self,
        request: &'a PodRequest,
        requirements: Cow<'a, Requirements>,
        snapshot: &ClusterSnapshot,
        batch: &mut PlacementBatch<'_, I>,
    ) -> &mut PodClass {
        let generation = request.generation.as_ref();
        // The pods of a service usually follow each other.
        let is_last = |(last, of_last): (usize, Option<&Generation>)| {
            of_last == generation && self.classes[last].requirements == *requirements
        };
        let index = match self.last {
            Some(last) if is_last(last) => last.0,
            _ => {
                let group = generation.and_then(|generation| self.group(generation, snapshot, batch));
                let rules = self.rules(request, batch);
                // Copying the key costs less than hashing it twice.
                let key = ClassKey { requirements: requirements.into_owned(), group };
                *self.by_key.entry(key).or_insert_with_key(|key| {
                    self.classes.push(batch.new_class(key.requirements.clone(), group, rules));
                    self.classes.len() - 1
                })
            }
        };
        self.last = Some((index, generation));
        &mut self.classes[index]
    }

    fn group<I: Iterator<Item = RankKey>>(
        &mut self,
        generation: &'a Generation,
        snapshot: &ClusterSnapshot,
        batch: &mut PlacementBatch<'_, I>,
    ) -> Option<usize> {
        let placed = snapshot.placed().generations.get(generation)?;
        Some(*self.groups.entry(generation).or_insert_with(|| batch.new_group(placed)))
    }

    /// All pods of a service have the same.
    fn rules<I: Iterator<Item = RankKey>>(
        &mut self,
        request: &'a PodRequest,
        batch: &mut PlacementBatch<'_, I>,
    ) -> Option<usize> {
        request.requirements.rules.as_ref()?;
        let generation = request.generation.as_ref();
        if let Some(known) = generation.and_then(|generation| self.rules.get(generation)) {
            return *known;
        }
        let beside = generation.and_then(|generation| self.rules_of.get(&generation.service)).copied();
        let rules = batch.new_rules(&request.requirements, generation, beside);
        if let Some(generation) = generation {
            self.rules.insert(generation, rules);
            self.rules_of.extend(rules.map(|rules| (&generation.service, rules)));
        }
        rules
    }
}

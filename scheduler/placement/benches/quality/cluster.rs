//! The cluster that the pods of the trace are placed on. Nodes in equal state are judged once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kubeleet_placement::{NeededUnits, Workload, left_points, tie_points};

use crate::random::Random;
use crate::strategy::Strategy;
use crate::trace::{GPU, Trace, TraceNode, TracePod};

/// In percent of all GPUs.
pub struct Figures {
    pub allocated: f64,
    /// Free thousandths that no typical pod could use, when 95 % were asked for.
    pub stranded: f64,
}

/// The free amounts of a node. GPUs are in descending order: which of them is which makes no difference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    cpu: u64,
    memory: u64,
    gpus: Vec<u64>,
    /// 1 for each set of models that has the node's.
    models: Vec<u64>,
}

pub struct Cluster<'a> {
    trace: &'a Trace,
    /// By state; nodes of a set are alike.
    nodes: BTreeMap<State, usize>,
    workload: Workload,
    largest: TraceNode,
    /// Of a state and a pod.
    lost: HashMap<State, HashMap<TracePod, (u64, State)>>,
}

impl<'a> Cluster<'a> {
    pub fn new(trace: &'a Trace) -> Self {
        let mut nodes = BTreeMap::new();
        for node in &trace.nodes {
            let of_set = |set: &String| u64::from(set.split('|').any(|model| model == node.model));
            let models = trace.model_sets.iter().map(of_set).collect();
            let gpus = vec![GPU; node.gpus];
            *nodes.entry(State { cpu: node.cpu, memory: node.memory, gpus, models }).or_default() += 1;
        }
        let most = |of: fn(&TraceNode) -> u64| trace.nodes.iter().map(of).max().unwrap();
        let largest = TraceNode {
            cpu: most(|node| node.cpu),
            memory: most(|node| node.memory),
            gpus: most(|node| node.gpus as u64) as usize,
            model: String::new(),
        };
        Self { trace, nodes, workload: workload(trace), largest, lost: HashMap::new() }
    }

    pub fn run(mut self, strategy: Strategy, arrivals: &[TracePod], random: &mut Random) -> Figures {
        let all = self.trace.gpu_total();
        let percent = |part: u64| part as f64 * 100.0 / all as f64;
        let (mut asked, mut allocated, mut stranded) = (0, 0, None);
        for pod in arrivals {
            if asked * 100 >= all * 95 && stranded.is_none() {
                stranded = Some(self.stranded());
            }
            asked += pod.gpu_total();
            let chosen = match strategy {
                Strategy::Random => self.any(pod, random),
                Strategy::Pack => self.best(pod, |cluster, before, pod| cluster.packed(before, pod)),
                Strategy::Fragmentation => self.best(pod, Self::least_lost),
            };
            if let Some((before, after)) = chosen {
                allocated += pod.gpu_total();
                self.change(&before, after);
            }
        }
        Figures {
            allocated: percent(allocated),
            stranded: stranded.map_or(0.0, |free| free * 100.0 / all as f64),
        }
    }

    fn change(&mut self, before: &State, after: State) {
        let count = self.nodes.get_mut(before).unwrap();
        *count -= 1;
        if *count == 0 {
            self.nodes.remove(before);
            self.lost.remove(before);
        }
        *self.nodes.entry(after).or_default() += 1;
    }

    fn any(&self, pod: &TracePod, random: &mut Random) -> Option<(State, State)> {
        let fitting = self.nodes.iter().filter(|(state, _)| state.fits(pod));
        let fitting: Vec<(&State, usize)> = fitting.map(|(state, count)| (state, *count)).collect();
        let mut drawn = random.below(fitting.iter().map(|(_, count)| count).sum::<usize>().max(1));
        let (state, _) = fitting.into_iter().find(|(_, count)| {
            let is_it = drawn < *count;
            drawn = drawn.saturating_sub(*count);
            is_it
        })?;
        let options = state.after(pod);
        let after = options[random.below(options.len())].clone();
        Some((state.clone(), after))
    }

    /// The lowest score; ties in the order of the states.
    fn best(
        &mut self,
        pod: &TracePod,
        judge: impl Fn(&mut Self, &State, &TracePod) -> (u64, State),
    ) -> Option<(State, State)> {
        let fitting: Vec<State> = self.nodes.keys().filter(|state| state.fits(pod)).cloned().collect();
        let judged = fitting.into_iter().map(|state| {
            let (score, after) = judge(self, &state, pod);
            (score, state, after)
        });
        judged.min_by(|a, b| a.0.cmp(&b.0)).map(|(_, before, after)| (before, after))
    }

    /// As the published best fit: processor and GPUs, and a share of the GPU that has the least left.
    fn packed(&self, before: &State, pod: &TracePod) -> (u64, State) {
        let after = before.after(pod).pop().unwrap();
        (self.left(&after), after)
    }

    fn left(&self, state: &State) -> u64 {
        let gpus = left_points(state.gpus.iter().sum(), self.largest.gpus as u64 * GPU);
        (left_points(state.cpu, self.largest.cpu) + gpus) / 2
    }

    fn least_lost(&mut self, before: &State, pod: &TracePod) -> (u64, State) {
        if let Some(known) = self.lost.get(before).and_then(|of_state| of_state.get(pod)) {
            return known.clone();
        }
        let usable = self.usable(before);
        let options = before.after(pod).into_iter();
        let judged = options.map(|after| {
            let lost = usable.saturating_sub(self.usable(&after));
            (lost + tie_points(self.left(&after)), after)
        });
        let best = judged.min_by(|a, b| a.0.cmp(&b.0)).unwrap();
        self.lost.entry(before.clone()).or_default().insert(pod.clone(), best.clone());
        best
    }

    fn usable(&self, state: &State) -> u64 {
        self.workload.usable(&state.units())
    }

    /// The mean over the typical pods that need GPUs.
    fn stranded(&self) -> f64 {
        let typical = || self.trace.typical.iter().filter(|(pod, _)| pod.gpus > 0);
        let all: u64 = typical().map(|(_, count)| count).sum();
        let of_pod = |pod: &TracePod| -> u64 {
            self.nodes.iter().map(|(state, count)| state.stranded(pod) * *count as u64).sum()
        };
        typical().map(|(pod, count)| of_pod(pod) as f64 * *count as f64).sum::<f64>() / all as f64
    }
}

impl State {
    fn units(&self) -> Vec<&[u64]> {
        let fixed = [std::slice::from_ref(&self.cpu), std::slice::from_ref(&self.memory), &self.gpus];
        let models = self.models.iter().map(std::slice::from_ref);
        fixed.into_iter().chain(models).collect()
    }

    fn fits(&self, pod: &TracePod) -> bool {
        self.cpu >= pod.cpu
            && self.memory >= pod.memory
            && pod.models.is_none_or(|set| self.models[set] == 1)
            && (pod.gpus == 0 || self.gpus.get(pod.gpus - 1).is_some_and(|free| *free >= pod.gpu_share))
    }

    /// The states with the pod. They differ in the GPU of which it takes a share; the last one has the least
    /// left.
    fn after(&self, pod: &TracePod) -> Vec<Self> {
        let without = Self { cpu: self.cpu - pod.cpu, memory: self.memory - pod.memory, ..self.clone() };
        if pod.gpus != 1 || pod.gpu_share == GPU {
            return vec![without.take(0..pod.gpus, pod.gpu_share)];
        }
        let different: BTreeSet<Reverse<u64>> =
            self.gpus.iter().filter(|free| **free >= pod.gpu_share).map(|free| Reverse(*free)).collect();
        let one = |free: Reverse<u64>| {
            let at = self.gpus.iter().position(|other| *other == free.0).unwrap();
            without.clone().take(at..at + 1, pod.gpu_share)
        };
        different.into_iter().map(one).collect()
    }

    fn take(mut self, gpus: std::ops::Range<usize>, share: u64) -> Self {
        self.gpus[gpus].iter_mut().for_each(|free| *free -= share);
        self.gpus.sort_unstable_by_key(|free| Reverse(*free));
        self
    }

    /// Thousandths of GPUs that the pod could not use.
    fn stranded(&self, pod: &TracePod) -> u64 {
        let fits = self.cpu >= pod.cpu
            && pod.models.is_none_or(|set| self.models[set] == 1)
            && self.gpus.get(pod.gpus - 1).is_some_and(|free| *free >= pod.gpu_share);
        self.gpus.iter().filter(|free| !fits || **free < pod.gpu_share).sum()
    }
}

fn workload(trace: &Trace) -> Workload {
    let amount = |each: u64| NeededUnits { units: usize::from(each > 0), each };
    let needs = |pod: &TracePod| {
        let models = (0..trace.model_sets.len()).map(|set| amount(u64::from(pod.models == Some(set))));
        let gpus = NeededUnits { units: pod.gpus, each: pod.gpu_share };
        [amount(pod.cpu), amount(pod.memory), gpus].into_iter().chain(models).collect()
    };
    let nodes = trace.nodes.len() as u64;
    let average = |of: fn(&TraceNode) -> u64| trace.nodes.iter().map(of).sum::<u64>() / nodes;
    // A model is a condition and no amount.
    let models = trace.model_sets.iter().map(|_| 0);
    let averages =
        [average(|node| node.cpu), average(|node| node.memory), average(|node| node.gpus as u64 * GPU)];
    let pods = trace.typical.iter().map(|(pod, count)| (needs(pod), *count)).collect();
    Workload::new(pods, averages.into_iter().chain(models).collect())
}

//! The nodes and pods of the trace.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::random::Random;

/// Thousandths of one.
pub const GPU: u64 = 1_000;
/// The most frequent kinds of pods that are this part of all, in percent, are typical ones.
const TYPICAL: u64 = 95;

pub struct Trace {
    pub nodes: Vec<TraceNode>,
    pub pods: Vec<TracePod>,
    /// With their numbers.
    pub typical: Vec<(TracePod, u64)>,
    /// The sets of models that pods name.
    pub model_sets: Vec<String>,
}

#[derive(Clone)]
pub struct TraceNode {
    pub cpu: u64,
    pub memory: u64,
    pub gpus: usize,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TracePod {
    pub cpu: u64,
    pub memory: u64,
    pub gpus: usize,
    /// Thousandths of each.
    pub gpu_share: u64,
    /// An index into the sets of models.
    pub models: Option<usize>,
}

impl TracePod {
    pub fn gpu_total(&self) -> u64 {
        self.gpus as u64 * self.gpu_share
    }
}

impl Trace {
    /// Of the nodes with GPUs, as the published figures.
    pub fn read(folder: &Path, list: &str) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for row in rows(folder, "openb_node_list_gpu_node.csv")? {
            let number = |at: usize| row[at].parse::<u64>().unwrap();
            nodes.push(TraceNode {
                cpu: number(1),
                memory: number(2),
                gpus: number(3) as usize,
                model: row[4].clone(),
            });
        }
        let (mut pods, mut model_sets) = (Vec::new(), Vec::new());
        for row in rows(folder, &format!("openb_pod_list_{list}.csv"))? {
            let number = |at: usize| row[at].parse::<u64>().unwrap();
            let gpus = number(3) as usize;
            let models = (!row[5].is_empty()).then(|| index_of(&mut model_sets, &row[5]));
            let gpu_share = if gpus == 0 { 0 } else { number(4) };
            pods.push(TracePod { cpu: number(1), memory: number(2), gpus, gpu_share, models });
        }
        let typical = typical(&pods);
        Ok(Self { nodes, pods, typical, model_sets })
    }

    /// All pods of the list, then others drawn from it until they ask for `percent` of the GPUs; shuffled.
    pub fn arrivals(&self, percent: u64, random: &mut Random) -> Vec<TracePod> {
        let limit = self.gpu_total() * percent / 100;
        let mut arrivals = self.pods.clone();
        let mut asked: u64 = arrivals.iter().map(TracePod::gpu_total).sum();
        loop {
            let drawn = &self.pods[random.below(self.pods.len())];
            if asked + drawn.gpu_share > limit {
                break;
            }
            asked += drawn.gpu_total();
            arrivals.push(drawn.clone());
        }
        random.shuffle(&mut arrivals);
        arrivals
    }

    pub fn gpu_total(&self) -> u64 {
        self.nodes.iter().map(|node| node.gpus as u64 * GPU).sum()
    }
}

fn typical(pods: &[TracePod]) -> Vec<(TracePod, u64)> {
    let mut counts: HashMap<&TracePod, u64> = HashMap::new();
    pods.iter().for_each(|pod| *counts.entry(pod).or_default() += 1);
    let mut kinds: Vec<(TracePod, u64)> =
        counts.into_iter().map(|(pod, count)| (pod.clone(), count)).collect();
    kinds.sort_by(|(pod, count), (other, of_other)| of_other.cmp(count).then_with(|| pod.cmp(other)));
    let enough = pods.len() as u64 * TYPICAL / 100;
    let mut covered = 0;
    kinds.retain(|(_, count)| {
        let is_needed = covered < enough;
        covered += count;
        is_needed
    });
    kinds
}

fn index_of(known: &mut Vec<String>, text: &str) -> usize {
    known.iter().position(|one| one == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    })
}

fn rows(folder: &Path, name: &str) -> Result<Vec<Vec<String>>, String> {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    Ok(text.lines().skip(1).map(fields).collect())
}

//! Which node has been under pressure for a while, and which of its pods suffer without being the cause.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::ids::{NodeName, PodId};
use model::node::Node;
use model::node::usage::{PodUsage, Usage, UsageReport};
use pending::PressureKind;

/// A pod that waits for less, in percent, does not suffer.
const LITTLE: f32 = 5.0;

pub(crate) struct PressureWatch {
    lasting: Duration,
    since: BTreeMap<(NodeName, PressureKind), Instant>,
}

impl PressureWatch {
    pub(crate) fn new(lasting: Duration) -> Self {
        Self { lasting, since: BTreeMap::new() }
    }

    /// Compares each of these nodes with the median of them.
    pub(crate) fn observe(&mut self, now: Instant, nodes: &[&Node]) {
        let mut since = BTreeMap::new();
        for kind in PressureKind::ALL {
            let of = |node: &Node| node.psi.map(|psi| kind.of(&psi));
            let mut all: Vec<f32> = nodes.iter().filter_map(|node| of(node)).collect();
            all.sort_by(f32::total_cmp);
            let Some(median) = all.get(all.len().saturating_sub(1) / 2) else { continue };
            let much = median + PressureKind::MUCH;
            for node in nodes.iter().filter(|node| of(node).is_some_and(|pressure| pressure >= much)) {
                let key = (node.name.clone(), kind);
                let begun = self.since.get(&key).copied().unwrap_or(now);
                since.insert(key, begun);
            }
        }
        self.since = since;
    }

    /// The one that has been under pressure for longest, and whether that is long.
    pub(crate) fn worst(&self, now: Instant) -> Option<(NodeName, PressureKind, bool)> {
        let ((node, kind), begun) = self.since.iter().min_by_key(|(_, begun)| **begun)?;
        Some((node.clone(), *kind, now.saturating_duration_since(*begun) >= self.lasting))
    }

    pub(crate) fn forget(&mut self) {
        self.since.clear();
    }

    /// A pod is leaving it, or none could: the pressure has to last once more.
    pub(crate) fn count_anew(&mut self, now: Instant, node: &NodeName) {
        let of_node = self.since.iter_mut().filter(|((name, _), _)| name == node);
        of_node.for_each(|(_, begun)| *begun = now);
    }
}

/// Returns the pods that wait most, first.
pub(crate) fn sufferers(kind: PressureKind, report: &UsageReport) -> Vec<PodId> {
    let waits = |pod: &PodUsage| pod.usage.psi.map_or(0.0, |psi| kind.of(&psi));
    let suffers = |pod: &&PodUsage| waits(pod) >= LITTLE && !causes_it(kind, &pod.usage, waits(pod));
    let mut pods: Vec<&PodUsage> = report.pods.iter().filter(suffers).collect();
    pods.sort_by(|one, other| waits(other).total_cmp(&waits(one)).then_with(|| one.name.cmp(&other.name)));
    pods.into_iter().map(|pod| pod.uuid.clone()).collect()
}

/// Its own limit holds the pod up: elsewhere it would wait as long.
fn causes_it(kind: PressureKind, usage: &Usage, waits: f32) -> bool {
    match kind {
        PressureKind::Cpu => {
            usage.cpu_throttled_millis.is_some_and(|millis| millis as f32 / 10.0 >= waits / 2.0)
        }
        PressureKind::Memory => {
            let limit = usage.memory_limit_bytes.zip(usage.memory_bytes);
            limit.is_some_and(|(limit, used)| used >= limit / 10 * 9)
        }
        PressureKind::Io => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::node::{Psi, Resources};
    use testkit::fixtures;

    use super::*;

    fn node(name: &str, cpu_some: f32, io_some: f32) -> Node {
        let psi = Some(Psi { cpu_some, io_some, ..Psi::default() });
        Node { psi, ..fixtures::node(name, Resources::default()) }
    }

    #[test]
    fn pressure_far_above_the_median_lasts_from_its_first_look_on() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut watch = PressureWatch::new(second * 180);
        let name = |text| NodeName::new(text).unwrap();
        let mut look = |seconds: u32, loads: [(f32, f32); 3]| {
            let [a, b, c] = loads;
            let nodes = [node("a", a.0, a.1), node("b", b.0, b.1), node("c", c.0, c.1)];
            let now = start + second * seconds;
            watch.observe(now, &nodes.each_ref());
            watch.worst(now)
        };
        let (calm, hot) = ((10.0, 0.0), (26.0, 0.0));
        assert_eq!(look(0, [calm, calm, (24.9, 0.0)]), None);
        assert_eq!(look(10, [calm, hot, calm]), Some((name("b"), PressureKind::Cpu, false)));
        assert_eq!(look(100, [(10.0, 15.0), hot, calm]), Some((name("b"), PressureKind::Cpu, false)));
        assert_eq!(look(190, [calm, hot, calm]), Some((name("b"), PressureKind::Cpu, true)));
        assert_eq!(look(200, [hot, hot, calm]), None, "most have it: the median is high");
        assert_eq!(look(210, [calm, hot, calm]), Some((name("b"), PressureKind::Cpu, false)));
        watch.count_anew(start + second * 400, &name("b"));
        assert_eq!(watch.worst(start + second * 579), Some((name("b"), PressureKind::Cpu, false)));
        assert_eq!(watch.worst(start + second * 580), Some((name("b"), PressureKind::Cpu, true)));
    }

    #[test]
    fn a_pod_at_its_own_limit_is_no_reason() {
        let pod = |name: &str, usage: Usage| PodUsage {
            uuid: PodId::new(name).unwrap(),
            name: name.to_owned(),
            service: None,
            usage,
        };
        let waits = |cpu_some, memory_some| Some(Psi { cpu_some, memory_some, ..Psi::default() });
        let report = UsageReport {
            pods: vec![
                pod("little", Usage { psi: waits(4.9, 4.9), ..Usage::default() }),
                pod("some", Usage { psi: waits(20.0, 0.0), ..Usage::default() }),
                pod("unknown", Usage::default()),
                pod(
                    "throttled",
                    Usage { psi: waits(60.0, 0.0), cpu_throttled_millis: Some(300), ..Usage::default() },
                ),
                pod(
                    "most",
                    Usage { psi: waits(60.0, 0.0), cpu_throttled_millis: Some(299), ..Usage::default() },
                ),
                pod(
                    "full",
                    Usage {
                        psi: waits(0.0, 50.0),
                        memory_bytes: Some(900),
                        memory_limit_bytes: Some(1000),
                        ..Usage::default()
                    },
                ),
                pod("pressed", Usage { psi: waits(0.0, 30.0), memory_bytes: Some(900), ..Usage::default() }),
            ],
            ..UsageReport::default()
        };
        let names =
            |kind| -> Vec<String> { sufferers(kind, &report).iter().map(ToString::to_string).collect() };
        assert_eq!(names(PressureKind::Cpu), ["most", "some"]);
        assert_eq!(names(PressureKind::Memory), ["pressed"]);
        assert_eq!(names(PressureKind::Io), [""; 0]);
    }
}

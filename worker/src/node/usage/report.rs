//! One measurement of this node, and the report of two of them.

use std::collections::HashMap;
use std::time::Duration;

use engine::Counters;
use model::node::usage::{MachineUsage, PodUsage, Usage, UsageReport};
use tokio::time::Instant;

use super::machine::{self, MachineCounters};
use super::rates;
use crate::session::context::SessionContext;

struct MeasuredPod {
    /// Without usage.
    pod: PodUsage,
    handles: Vec<String>,
}

pub(super) struct Measurement {
    at: Instant,
    machine: MachineCounters,
    pods: Vec<MeasuredPod>,
    counters: HashMap<String, Counters>,
}

impl Measurement {
    pub(super) async fn take(context: &SessionContext) -> Self {
        let worker = &context.worker;
        let pods: Vec<MeasuredPod> = context.table.map_managed(|managed| {
            let handles = managed.containers.iter().filter_map(|container| container.handle.clone());
            let (name, service) = (managed.payload.display_name(), managed.service.clone());
            let uuid = managed.payload.id.clone();
            let pod = PodUsage { uuid, name, service, usage: Usage::default() };
            Some(MeasuredPod { pod, handles: handles.collect() })
        });
        let handles: Vec<String> = pods.iter().flat_map(|pod| pod.handles.iter().cloned()).collect();
        let counted = worker.runtime.counters(&handles).await;
        let counters =
            handles.into_iter().zip(counted).filter_map(|(handle, counters)| Some((handle, counters?)));
        Self {
            at: Instant::now(),
            machine: machine::read((worker.pressure)()),
            counters: counters.collect(),
            pods,
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    pub(super) fn since(&self, before: Option<&Measurement>) -> UsageReport {
        let span = before.map_or(Duration::ZERO, |before| self.at.duration_since(before.at));
        let of_container = |handle: &String| {
            let now = self.counters.get(handle)?;
            Some(rates::between(before.and_then(|before| before.counters.get(handle)), now, span))
        };
        let pods = self.pods.iter().map(|measured| PodUsage {
            usage: measured.handles.iter().filter_map(of_container).fold(Usage::default(), Usage::plus),
            ..measured.pod.clone()
        });
        let machine = MachineUsage {
            usage: rates::between(
                before.map(|before| &before.machine.counters),
                &self.machine.counters,
                span,
            ),
            cpu_total_millis: self.machine.cpu_total_millis,
            memory_total_bytes: self.machine.memory_total_bytes,
            load: self.machine.load,
        };
        UsageReport { machine, pods: pods.collect() }
    }
}

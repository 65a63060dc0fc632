//! Usage of pods and nodes as table rows.

use jiff::Timestamp;
use model::node::usage::{NodeUsageView, PodUsageView, Usage};

use crate::{TableRow, Titles, humanize};

impl TableRow for PodUsageView {
    const TITLES: Titles = &["POD", "CPU", "MEMORY", "READ/S", "WRITTEN/S", "NODE", "ID"];
    const WIDE_TITLES: Titles = &["SERVICE", "PRESSURE"];

    fn cells(&self, wide: bool, _now: Timestamp) -> Vec<String> {
        let usage = &self.pod.usage;
        let id = if wide { self.pod.uuid.as_str() } else { self.pod.uuid.short() };
        vec![
            self.pod.name.clone(),
            cores(usage),
            bytes(usage.memory_bytes),
            bytes(usage.read_bytes_per_second),
            bytes(usage.write_bytes_per_second),
            self.node.to_string(),
            id.to_owned(),
            self.pod.service.as_ref().map(ToString::to_string).unwrap_or_default(),
            pressure(usage),
        ]
    }

    fn name(&self) -> String {
        format!("pod/{}", self.pod.uuid)
    }
}

impl TableRow for NodeUsageView {
    const TITLES: Titles = &["NODE", "CPU", "CPU%", "MEMORY", "MEMORY%", "LOAD", "PODS"];
    const WIDE_TITLES: Titles = &["PRESSURE"];

    fn cells(&self, _wide: bool, _now: Timestamp) -> Vec<String> {
        let machine = &self.machine;
        let usage = &machine.usage;
        vec![
            self.name.to_string(),
            cores(usage),
            percent(usage.cpu_millis, machine.cpu_total_millis),
            bytes(usage.memory_bytes),
            percent(usage.memory_bytes, machine.memory_total_bytes),
            machine
                .load
                .map(|[one, five, fifteen]| format!("{one:.2} {five:.2} {fifteen:.2}"))
                .unwrap_or_default(),
            self.pods.to_string(),
            pressure(usage),
        ]
    }

    fn name(&self) -> String {
        format!("node/{}", self.name)
    }
}

/// Two decimals: rows are easy to compare.
fn cores(usage: &Usage) -> String {
    usage.cpu_millis.map(|millis| format!("{:.2}", millis as f64 / 1000.0)).unwrap_or_default()
}

fn bytes(amount: Option<u64>) -> String {
    amount.map(humanize::bytes).unwrap_or_default()
}

fn percent(used: Option<u64>, total: u64) -> String {
    match used {
        Some(used) if total > 0 => format!("{:.0}%", used as f64 * 100.0 / total as f64),
        _ => String::new(),
    }
}

fn pressure(usage: &Usage) -> String {
    usage.psi.as_ref().map(super::nodes::pressure).unwrap_or_default()
}

//! Formats amounts of resources for people.

use model::node::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounded {
    Up,
    Down,
}

pub(super) fn amount(resource: Resource, amount: u64, rounded: Rounded) -> String {
    match resource {
        Resource::Memory => format!("{} of memory", memory(amount, rounded)),
        Resource::Cpu if amount == 1000 => "1 CPU".to_owned(),
        Resource::Cpu => format!("{} CPUs", cores(amount)),
        Resource::Pids => format!("{amount} processes"),
        Resource::Disk => format!("{} of disk", memory(amount, rounded)),
    }
}

pub(super) fn cores(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

pub(super) fn memory(bytes: u64, rounded: Rounded) -> String {
    let units = [("T", 1u64 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    let Some((name, unit)) = units.into_iter().find(|(_, unit)| bytes >= *unit) else {
        return format!("{bytes}B");
    };
    let (bytes, unit) = (u128::from(bytes) * 100, u128::from(unit));
    let hundredths = if rounded == Rounded::Up { bytes.div_ceil(unit) } else { bytes / unit };
    format!("{}{name}", hundredths as f64 / 100.0)
}

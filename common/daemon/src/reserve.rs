//! Resources kept for the system: the kernel, the container engine, and kubeleet itself.

use model::node::Resources;
use model::spec::{Cpus, Memory};

/// Bounds of the default, in bytes.
const MEMORY: (u64, u64) = (100 << 20, 1 << 30);
const MEMORY_DIVISOR: u64 = 20;
/// The disk also holds images and logs.
const DISK: (u64, u64) = (1 << 30, 100 << 30);
const DISK_DIVISOR: u64 = 5;
const PIDS: u64 = 1024;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserve {
    /// A CPU shortage kills nothing: by default none.
    pub cpus: Option<Cpus>,
    pub memory: Option<Memory>,
    pub pids: Option<u64>,
    pub disk: Option<Memory>,
}

impl Reserve {
    /// A default takes at most half of the machine.
    pub fn of(&self, machine: Resources) -> Resources {
        let memory = (machine.memory_bytes / MEMORY_DIVISOR).clamp(MEMORY.0, MEMORY.1);
        let memory = memory.min(machine.memory_bytes / 2);
        let disk = (machine.disk_bytes / DISK_DIVISOR).clamp(DISK.0, DISK.1).min(machine.disk_bytes / 2);
        Resources {
            cpu_millis: self.cpus.map_or(0, Cpus::millis),
            memory_bytes: self.memory.map_or(memory, Memory::bytes),
            pids: self.pids.unwrap_or(PIDS.min(machine.pids / 2)),
            disk_bytes: self.disk.map_or(disk, Memory::bytes),
            pods: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_depends_on_the_size_of_the_machine() {
        let (mib, gib) = (1u64 << 20, 1u64 << 30);
        for (memory, kept) in [
            (0, 0),
            (128 * mib, 64 * mib),
            (gib, 100 * mib),
            (8 * gib, 8 * gib / 20),
            (20 * gib, gib),
            (512 * gib, gib),
        ] {
            let machine =
                Resources { memory_bytes: memory, cpu_millis: 2_000, pids: 32_768, disk_bytes: 0, pods: 0 };
            let expected =
                Resources { memory_bytes: kept, cpu_millis: 0, pids: 1024, disk_bytes: 0, pods: 0 };
            assert_eq!(Reserve::default().of(machine), expected, "{memory}");
        }
        for (disk, kept) in [(0, 0), (gib, gib / 2), (10 * gib, 2 * gib), (1024 * gib, 100 * gib)] {
            let machine = Resources { disk_bytes: disk, ..Resources::default() };
            assert_eq!(Reserve::default().of(machine).disk_bytes, kept, "{disk}");
        }
        assert_eq!(Reserve::default().of(Resources { pids: 100, ..Resources::default() }).pids, 50);
    }

    #[test]
    fn what_is_configured_is_kept_whatever_the_machine_has() {
        let reserve = Reserve {
            cpus: Some(Cpus::from_millis(500)),
            memory: Some(Memory::from_bytes(7)),
            pids: Some(0),
            disk: Some(Memory::from_bytes(9)),
        };
        let expected = Resources { cpu_millis: 500, memory_bytes: 7, pids: 0, disk_bytes: 9, pods: 0 };
        assert_eq!(reserve.of(Resources::default()), expected);
    }
}

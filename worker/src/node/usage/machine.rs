//! The machine's resource usage since boot.

use engine::Counters;
use model::node::Psi;
use procfs::{Current, CurrentSI, KernelStats, LoadAverage, Meminfo};

pub(super) struct MachineCounters {
    pub(super) counters: Counters,
    pub(super) cpu_total_millis: u64,
    pub(super) memory_total_bytes: u64,
    pub(super) load: Option<[f32; 3]>,
}

pub(super) fn read(psi: Option<Psi>) -> MachineCounters {
    let stats = KernelStats::current().ok();
    let busy = stats.as_ref().map(|stats| {
        let cpu = &stats.total;
        // Stolen time was not used here; that of virtual machines is in `user` and `nice`.
        let ticks = [cpu.user, cpu.nice, cpu.system, cpu.irq.unwrap_or(0), cpu.softirq.unwrap_or(0)];
        ticks.iter().sum::<u64>() * 1_000_000 / procfs::ticks_per_second().max(1)
    });
    let memory = Meminfo::current().ok();
    let available = memory.as_ref().and_then(|memory| memory.mem_available);
    let total = memory.as_ref().map_or(0, |memory| memory.mem_total);
    MachineCounters {
        counters: Counters {
            cpu_micros: busy,
            memory_bytes: available.map(|available| total.saturating_sub(available)),
            psi,
            ..Counters::default()
        },
        cpu_total_millis: stats.map_or(0, |stats| stats.cpu_time.len() as u64 * 1000),
        memory_total_bytes: total,
        load: LoadAverage::current().ok().map(|load| [load.one, load.five, load.fifteen]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_used_something() {
        let machine = read(None);
        assert!(machine.counters.cpu_micros > Some(0) && machine.cpu_total_millis >= 1000);
        assert!(machine.counters.memory_bytes < Some(machine.memory_total_bytes) && machine.load.is_some());
    }
}

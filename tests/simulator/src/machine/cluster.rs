//! The simulated cluster: hosts and process slots.

use crate::machine::bus::SharedBus;
use crate::machine::host::SimulatedHost;
use crate::machine::process_id::{HOSTS, PROCESSES, ProcessId, WORKERS};
use crate::machine::process_slot::ProcessSlot;
use crate::machine::random::Random;

/// All times are simulated milliseconds.
pub(crate) struct SimulatedCluster {
    pub(crate) hosts: Vec<SimulatedHost>,
    pub(crate) booted_at: [u64; HOSTS],
    pub(crate) last_heartbeats: [u64; WORKERS],
    pub(crate) slots: Vec<ProcessSlot>,
    pub(crate) instance_count: u64,
}

impl SimulatedCluster {
    /// The hosts have been up for a while.
    pub(crate) fn new(bus: &SharedBus, has_slow_disks: bool, now: u64, random: &mut Random) -> Self {
        let host = |index| SimulatedHost::new(ProcessId::of_host(index), bus.clone(), has_slow_disks);
        let slot = |index| match ProcessId::from_index(index) {
            ProcessId::SecondWorker => ProcessSlot { is_removed: true, ..ProcessSlot::default() },
            _ => ProcessSlot::default(),
        };
        Self {
            hosts: (0..HOSTS).map(host).collect(),
            booted_at: std::array::from_fn(|_| now - 1_000_000 * random.between(1, 9)),
            last_heartbeats: [now; WORKERS],
            slots: (0..PROCESSES).map(slot).collect(),
            instance_count: 0,
        }
    }

    pub(crate) fn slot(&self, process: ProcessId) -> &ProcessSlot {
        &self.slots[process.index()]
    }

    pub(crate) fn slot_mut(&mut self, process: ProcessId) -> &mut ProcessSlot {
        &mut self.slots[process.index()]
    }

    pub(crate) fn lease_end(&self, host: usize) -> u64 {
        self.hosts[host].lease_deadline().map_or(0, |deadline| deadline + self.booted_at[host])
    }

    /// The monotonic clock of a suspended host stands still.
    pub(crate) fn advance_clocks(&mut self, now: u64, elapsed: u64) {
        for (host, booted_at) in self.hosts.iter().zip(self.booted_at) {
            host.set_clock(now - booted_at);
        }
        for slot in &mut self.slots {
            if slot.is_suspended(now) {
                slot.clock_lag += elapsed;
            }
        }
    }
}

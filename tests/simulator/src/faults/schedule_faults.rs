//! The state of the fault injector.

use std::collections::BTreeSet;

use crate::faults::replica_snapshot::ReplicaSnapshot;
use crate::machine::process_id::{HOSTS, PROCESSES, ProcessId, WORKERS};
use crate::machine::random::Random;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefusedWrites {
    pub(crate) until: u64,
    /// By [`ProcessId::index`].
    pub(crate) refused: [bool; PROCESSES],
}

impl RefusedWrites {
    pub(crate) fn of(processes: impl IntoIterator<Item = ProcessId>, until: u64) -> Self {
        let mut outage = Self { until, ..Self::default() };
        processes.into_iter().for_each(|process| outage.refused[process.index()] = true);
        outage
    }

    pub(crate) fn is_refused(&self, process: ProcessId, now: u64) -> bool {
        now < self.until && self.refused[process.index()]
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CopiedSlots {
    /// Service, slot and pod.
    pub(crate) void: BTreeSet<(String, String, String)>,
    pub(crate) unlisted: BTreeSet<String>,
}

impl CopiedSlots {
    /// When a pod leaves the first slot of a replica, whatever is in the second one takes it.
    pub(crate) fn is_void(&self, service: &str, slot: &str, uuid: &str) -> bool {
        let first = slot.trim_end_matches('+');
        [first.to_owned(), format!("{first}+")]
            .into_iter()
            .any(|slot| self.void.contains(&(service.to_owned(), slot, uuid.to_owned())))
    }
}

/// Times are simulated milliseconds.
pub(crate) struct ScheduleFaults {
    /// 0 is no faults, 2 is twice as many as 1.
    pub(crate) rate: u64,
    pub(crate) has_failovers: bool,
    pub(crate) are_over: bool,
    pub(crate) redis_stalled_until: u64,
    pub(crate) write_outage: RefusedWrites,
    /// Separate, so that runs without write outages stay the same.
    pub(crate) outage_random: Random,
    pub(crate) has_write_outages: bool,
    /// Its failure detection times are doubled.
    pub(crate) longer_times_of: Option<ProcessId>,
    pub(crate) engine_hangs_until: [u64; HOSTS],
    pub(crate) replica: Option<ReplicaSnapshot>,
    pub(crate) backup: Option<ReplicaSnapshot>,
    pub(crate) failed_over_at: Option<u64>,
    pub(crate) emptied_until: Option<u64>,
    pub(crate) emptied_at: u64,
    /// Separate, so that runs without this fault stay the same.
    pub(crate) database_random: Random,
    pub(crate) has_other_databases: bool,
    pub(crate) copied_slots: CopiedSlots,
    pub(crate) slots_random: Random,
    pub(crate) copies_slots: bool,
    /// All of them, and also in the end.
    pub(crate) loses_scheduler_hints: bool,
    pub(crate) second_worker_until: Option<u64>,
    /// Pod and assignment. They were to run on when Redis was emptied.
    pub(crate) protected_containers: BTreeSet<(String, String)>,
    /// Pod and assignment. A worker carries out what it was told, even if Redis then forgets it, and removes
    /// one container after the other, again if the engine hangs.
    pub(crate) begun_stops: BTreeSet<(String, String)>,
}

impl ScheduleFaults {
    pub(crate) fn new(random: &mut Random, seed: u64) -> Self {
        let mut database_random = Random::new(!seed);
        let mut outage_random = Random::new(seed ^ 0x5a5a);
        let mut slots_random = Random::new(seed ^ 0x1a1a_1a1a);
        let rate = random.below(4) as u64;
        Self {
            rate,
            has_failovers: rate > 0 && random.per_mille(600),
            are_over: false,
            redis_stalled_until: 0,
            write_outage: RefusedWrites::default(),
            has_write_outages: rate > 0 && outage_random.per_mille(500),
            longer_times_of: outage_random
                .per_mille(200)
                .then(|| ProcessId::Worker(outage_random.below(WORKERS))),
            outage_random,
            engine_hangs_until: [0; HOSTS],
            replica: None,
            backup: None,
            failed_over_at: None,
            emptied_until: None,
            emptied_at: 0,
            has_other_databases: rate > 0 && database_random.per_mille(250),
            database_random,
            copied_slots: CopiedSlots::default(),
            copies_slots: rate > 0 && slots_random.per_mille(300),
            loses_scheduler_hints: false,
            slots_random,
            second_worker_until: None,
            protected_containers: BTreeSet::new(),
            begun_stops: BTreeSet::new(),
        }
    }

    pub(crate) fn end(&mut self) {
        self.are_over = true;
        self.replica = None;
        self.redis_stalled_until = 0;
        self.write_outage = RefusedWrites::default();
        self.engine_hangs_until = [0; HOSTS];
    }
}

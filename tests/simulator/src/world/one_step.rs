//! Time passes, faults occur, one waiting request is executed, the processes go on, and the invariants are
//! checked.

use crate::checks::invariants;
use crate::machine::process_id::{PROCESSES, ProcessId};
use crate::world::state::World;

/// In between, only the process that has just received a reply is polled.
const POLL_INTERVAL: u64 = 5;

impl World {
    pub(crate) fn stop_faults(&mut self) {
        self.restore_redis();
        self.remove_second_worker();
        self.correct_databases(u64::MAX);
        self.remove_held_containers();
        self.faults.end();
        self.proxies.end_faults();
        // A slow Redis is a fault as well.
        self.max_step = self.max_step.min(10);
        for slot in &mut self.cluster.slots {
            slot.end_faults();
        }
        self.clients.lock().are_done = true;
        self.log("", "no more faults");
    }

    pub(crate) fn step(&mut self) -> Result<(), Vec<String>> {
        self.stats.steps += 1;
        let elapsed = self.advance_clock();
        if !self.faults.are_over {
            self.inject_faults(elapsed);
            self.push_by_hand(elapsed);
        }
        invariants::note_mass_loss(self);
        self.restart_processes();
        self.progress_proxies(elapsed);
        self.deliver_hints();
        let answered = self.execute_next();
        self.poll_processes(answered, elapsed);
        self.poll_proxies(elapsed);
        self.observe();
        self.take_violations()
    }

    fn advance_clock(&mut self) -> u64 {
        let elapsed = if self.random.per_mille(1) {
            self.random.between(1000, 5000)
        } else if self.has_candidates() {
            self.random.between(0, self.max_step)
        } else {
            self.random.between(5, 60)
        };
        self.clock.now += elapsed;
        let now = self.clock.now;
        self.bus.lock().now = now;
        self.clients.lock().now = now;
        self.cluster.advance_clocks(now, elapsed);
        elapsed
    }

    fn poll_processes(&mut self, answered: Option<ProcessId>, elapsed: u64) {
        self.clock.since_poll += elapsed;
        let polls_all = self.clock.since_poll >= POLL_INTERVAL;
        if polls_all {
            self.clock.since_poll = 0;
        }
        let now = self.clock.now;
        for index in 0..PROCESSES {
            let slot = &self.cluster.slots[index];
            let is_due = polls_all || answered.is_some_and(|process| process.index() == index);
            if !is_due || (slot.is_paused(now) && !self.faults.are_over) {
                continue;
            }
            let Some(process) = &slot.process else { continue };
            process.poll(now - slot.clock_lag, || self.bus.lock().request_count);
            if process.has_ended() {
                let id = ProcessId::from_index(index);
                self.log(id, "ended");
                let until = self.cluster.slots[index].down_until.max(now + 1000);
                self.kill(id, until);
            }
        }
    }
}

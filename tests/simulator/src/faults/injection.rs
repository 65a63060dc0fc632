//! The fault injector: chooses faults, processes and times.

use engine::ContainerState;

use crate::checks::observed_state::{SimulatedPod, short};
use crate::faults::schedule_faults::RefusedWrites;
use crate::machine::process_id::{HOSTS, PROCESSES, ProcessId, WORKERS};
use crate::world::state::World;

impl World {
    pub(crate) fn inject_faults(&mut self, elapsed: u64) {
        let rate = self.faults.rate;
        if rate == 0 {
            return;
        }
        if let Some(until) = self.faults.emptied_until {
            if self.clock.now >= until {
                self.restore_redis();
            }
        } else if self.occurs(elapsed, rate) && self.do_all_know_cluster() {
            self.empty_redis();
        } else if self.faults.has_failovers {
            self.progress_failover(elapsed);
        }
        self.progress_second_worker(elapsed);
        self.progress_other_database(elapsed);
        self.progress_write_outage(elapsed);
        self.copy_slots_by_hand(elapsed);
        // No operator has a backup from before the cluster had an id.
        if self.faults.emptied_until.is_none() && self.occurs(elapsed, 8 * rate) && self.do_all_know_cluster()
        {
            self.faults.backup = Some(self.take_snapshot());
        }
        if self.occurs(elapsed, 60 * rate) {
            let process = ProcessId::from_index(self.random.below(PROCESSES));
            self.inject_into(process);
        }
        if self.occurs(elapsed, 6 * rate) {
            let until = self.clock.now + self.random.between(100, 9000);
            self.faults.redis_stalled_until = until;
            self.stats.stalls += 1;
            self.log("redis", format_args!("STALLS until {}", self.clock.since_start(until)));
        }
        if self.occurs(elapsed, 8 * rate) {
            self.remove_payload();
        }
        // More often where it matters: a worker is held up while its pod is assigned elsewhere.
        if self.occurs(elapsed, 500) {
            let stale = self.hosts_with_stale_pods();
            if let Some(host) = self.random.pick(&stale).copied() {
                self.hold_up(host);
            }
        }
    }

    /// `rate` is per thousand seconds.
    fn occurs(&mut self, elapsed: u64, rate: u64) -> bool {
        self.random.next() % 1_000_000 < elapsed * rate
    }

    fn do_all_know_cluster(&self) -> bool {
        let is_there = |host: &usize| !self.cluster.slot(ProcessId::of_host(*host)).is_removed;
        (0..HOSTS).filter(is_there).all(|host| self.cluster.hosts[host].knows_cluster())
    }

    /// A second worker needs a Redis that knows a cluster.
    fn progress_second_worker(&mut self, elapsed: u64) {
        match self.faults.second_worker_until {
            Some(until) if self.clock.now >= until => self.remove_second_worker(),
            Some(_) => {}
            None => {
                if self.occurs(elapsed, 12 * self.faults.rate) && self.faults.emptied_until.is_none() {
                    let until = self.clock.now + self.random.between(1, 6 * self.timing.dead);
                    self.faults.second_worker_until = Some(until);
                    self.cluster.slot_mut(ProcessId::SecondWorker).is_removed = false;
                    self.stats.second_workers += 1;
                    let until = self.clock.since_start(until);
                    self.log(ProcessId::SecondWorker, format_args!("APPEARS until {until}"));
                }
            }
        }
    }

    pub(crate) fn remove_second_worker(&mut self) {
        let worker = ProcessId::SecondWorker;
        if self.faults.second_worker_until.take().is_some() {
            self.crash_host(WORKERS, self.clock.now);
            let slot = self.cluster.slot_mut(worker);
            slot.is_removed = true;
            slot.end_faults();
            self.cluster.hosts[WORKERS].replace_machine();
        }
    }

    fn progress_other_database(&mut self, elapsed: u64) {
        if !self.faults.has_other_databases {
            return;
        }
        self.correct_databases(self.clock.now);
        let (now, rate) = (self.clock.now, 4 * self.faults.rate);
        let is_any_elsewhere = self.cluster.slots.iter().any(|slot| slot.elsewhere.is_some());
        let random = &mut self.faults.database_random;
        if random.next() % 1_000_000 >= elapsed * rate || is_any_elsewhere {
            return;
        }
        let host = random.below(WORKERS);
        let longest = if random.per_mille(500) { self.timing.fence } else { 3 * self.timing.dead };
        let (until, is_of_others) = (now + random.between(1, longest), random.per_mille(500));
        if !self.cluster.hosts[host].knows_cluster() {
            return;
        }
        self.set_up_other_database(is_of_others);
        let worker = ProcessId::Worker(host);
        self.stats.other_databases += 1;
        self.log(worker, format_args!("ANOTHER DATABASE until {}", self.clock.since_start(until)));
        self.kill(worker, now);
        self.cluster.slot_mut(worker).elsewhere = Some((now, until));
    }

    /// As a slip in redis-cli does. The target has no further slot, where the API would create a pod at once,
    /// and no pod with a removed payload, which no key would name.
    fn copy_slots_by_hand(&mut self, elapsed: u64) {
        let rate = 6 * self.faults.rate;
        if !self.faults.copies_slots || self.faults.slots_random.next() % 1_000_000 >= elapsed * rate {
            return;
        }
        let all = &self.observed.slots;
        let clients = self.clients.lock();
        let is_covered = |from: &str, to: &str| {
            let (from, to) = (&all[from], &all[to]);
            let mut removed = to.values().filter(|uuid| clients.expected.may_be_missing(uuid));
            !to.is_empty() && to.keys().all(|slot| from.contains_key(slot)) && removed.next().is_none()
        };
        let pairs = all.keys().flat_map(|from| all.keys().map(move |to| (from.clone(), to.clone())));
        let pairs: Vec<(String, String)> =
            pairs.filter(|(from, to)| from != to && is_covered(from, to)).collect();
        drop(clients);
        let Some((from, to)) = self.faults.slots_random.pick(&pairs).cloned() else { return };
        let (copied, lost) = (all[&from].clone(), all[&to].clone());
        let void = copied.into_iter().map(|(slot, uuid)| (to.clone(), slot, uuid));
        self.faults.copied_slots.void.extend(void);
        self.faults.copied_slots.unlisted.extend(lost.into_values());
        self.stats.copied_slots += 1;
        self.log("user", format_args!("COPIES the slots of {from} over those of {to}"));
        let [from, to] = [from, to].map(|service| format!("slots:{service}"));
        self.change(&["COPY", &from, &to, "REPLACE"], &[&to]);
        self.observe();
    }

    fn progress_write_outage(&mut self, elapsed: u64) {
        let (now, rate) = (self.clock.now, 6 * self.faults.rate);
        if !self.faults.has_write_outages || now < self.faults.write_outage.until {
            return;
        }
        let random = &mut self.faults.outage_random;
        if random.next() % 1_000_000 >= elapsed * rate {
            return;
        }
        let until = now + random.between(1, 3 * self.timing.dead);
        let (is_for_all, mask) = (random.per_mille(500), random.next());
        let is_hit = |index: &usize| is_for_all || mask >> index & 1 == 1;
        let hit = (0..PROCESSES).filter(is_hit).map(ProcessId::from_index);
        self.begin_write_outage(RefusedWrites::of(hit, until));
    }

    pub(crate) fn begin_write_outage(&mut self, outage: RefusedWrites) {
        self.stats.write_outages += 1;
        let processes = (0..PROCESSES).filter(|index| outage.refused[*index]).map(ProcessId::from_index);
        let names: Vec<String> = processes.map(|process| process.to_string()).collect();
        let until = self.clock.since_start(outage.until);
        self.log("redis", format_args!("REFUSES WRITES of {} until {until}", names.join(" ")));
        self.faults.write_outage = outage;
    }

    pub(crate) fn correct_databases(&mut self, now: u64) {
        for host in 0..WORKERS {
            let worker = ProcessId::Worker(host);
            if self.cluster.slot(worker).elsewhere.is_some_and(|(_, until)| until <= now) {
                self.cluster.slot_mut(worker).elsewhere = None;
                self.log(worker, "its database is CORRECTED");
                self.kill(worker, self.clock.now);
            }
        }
    }

    fn progress_failover(&mut self, elapsed: u64) {
        let pause = 2 * self.timing.failover_pause;
        if self.faults.failed_over_at.is_some_and(|at| self.clock.now < at + pause) {
            return;
        }
        if self.faults.replica.is_none() {
            let is_eventful = !self.observed.payloads_in("sq").is_empty() || self.is_any_node_silent();
            if self.occurs(elapsed, if is_eventful { 400 } else { 40 }) {
                self.stop_replication();
            }
        } else {
            let loses_start = self.would_failover_lose_a_start();
            if self.occurs(elapsed, if loses_start { 600 } else { 80 }) {
                self.fail_over();
                if self.random.per_mille(500) {
                    let worker = ProcessId::Worker(self.random.below(WORKERS));
                    self.inject_into(worker);
                }
            }
        }
    }

    /// For about the length of a lease.
    fn hold_up(&mut self, host: usize) {
        let until = self.clock.now + self.random.between(self.timing.fence / 8, 2 * self.timing.fence);
        if self.random.per_mille(600) {
            self.pause(ProcessId::Worker(host), until);
        } else {
            self.partition(ProcessId::Worker(host), until);
        }
    }

    fn inject_into(&mut self, process: ProcessId) {
        let timing = self.timing;
        // So short that it hardly matters, or so long that the node is declared dead.
        let is_long = self.random.per_mille(500);
        let (shortest, longest) = if is_long { (timing.dead, 4 * timing.dead) } else { (1, timing.fence) };
        let until = self.clock.now + self.random.between(shortest, longest);
        match (self.random.below(12), process) {
            (0..3, _) => self.crash(process, until),
            (3, ProcessId::Worker(host)) => self.crash_host(host, until),
            (4, ProcessId::Worker(host)) => self.end_a_container(host),
            (5, ProcessId::Worker(host)) => self.suspend(host, until),
            (6, ProcessId::Worker(host)) => self.hang_engine(host, until),
            (7, _) => self.shut_down(process, until),
            (3..6 | 8..10, _) => self.pause(process, until),
            _ => self.partition(process, until),
        }
    }

    /// Reconcile must notice that the payload is in no queue.
    fn remove_payload(&mut self) {
        let mut candidates = Vec::new();
        for (key, payloads) in &self.observed.payloads {
            if matches!(key.as_str(), "dq" | "uq") {
                continue;
            }
            for payload in payloads {
                let uuid = self.pod_ids.pod_of(payload).unwrap_or_default();
                let has_slot = !self.faults.copied_slots.unlisted.contains(uuid);
                if has_slot && self.observed.pods.get(uuid).is_some_and(SimulatedPod::is_active) {
                    candidates.push((key.clone(), payload.clone(), uuid.to_owned()));
                }
            }
        }
        let Some((key, payload, uuid)) = self.random.pick(&candidates).cloned() else { return };
        if key.starts_with("cs:") {
            self.change(&[b"SREM", key.as_bytes(), &payload], &[&key]);
        } else {
            self.change(&[b"LREM", key.as_bytes(), b"1", &payload], &[&key]);
        }
        self.stats.removed_payloads += 1;
        self.log("user", format_args!("removes {} from {key}", short(&uuid)));
        self.clients.lock().expected.remove_payload(&uuid);
        self.observe();
    }

    fn end_a_container(&mut self, host: usize) {
        let containers = self.cluster.hosts[host].running();
        let Some(container) = self.random.pick(&containers).cloned() else { return };
        let code = [None, Some(0), Some(1)][self.random.below(3)];
        let pod = container.pod.short();
        match code {
            Some(code) => self.log(ProcessId::Worker(host), format_args!("container of {pod} exits: {code}")),
            None => self.log(ProcessId::Worker(host), format_args!("container of {pod} vanishes")),
        }
        self.cluster.hosts[host].end_container(&container.handle, code);
        debug_assert_eq!(container.state, ContainerState::Running);
    }

    pub(crate) fn pause(&mut self, process: ProcessId, until: u64) {
        self.stats.pauses += 1;
        self.log(process, format_args!("PAUSED until {}", self.clock.since_start(until)));
        self.cluster.slot_mut(process).paused_until = until;
    }

    /// One way: only the process' requests pass.
    pub(crate) fn partition(&mut self, process: ProcessId, until: u64) {
        self.stats.partitions += 1;
        let is_one_way = self.random.per_mille(250);
        let direction = if is_one_way { ", one way" } else { "" };
        self.log(process, format_args!("PARTITIONED until {}{direction}", self.clock.since_start(until)));
        let slot = self.cluster.slot_mut(process);
        slot.partitioned_until = until;
        slot.is_one_way_partition = is_one_way;
    }

    pub(crate) fn crash(&mut self, process: ProcessId, until: u64) {
        self.stats.crashes += 1;
        self.log(process, format_args!("CRASHES until {}", self.clock.since_start(until)));
        self.kill(process, until);
    }

    fn crash_host(&mut self, host: usize, until: u64) {
        self.stats.host_crashes += 1;
        let worker = ProcessId::of_host(host);
        self.log(worker, format_args!("its HOST CRASHES until {}", self.clock.since_start(until)));
        self.kill(worker, until);
        self.bus.lock().engine_requests.retain(|request| request.process != worker);
        self.cluster.hosts[host].reboot();
        self.proxies.reboot(host, until);
        self.cluster.booted_at[host] = self.clock.now - self.random.between(0, 1_000_000);
    }

    /// The clock that counts suspend does not stop.
    fn suspend(&mut self, host: usize, until: u64) {
        self.stats.suspensions += 1;
        let worker = ProcessId::Worker(host);
        self.log(worker, format_args!("SUSPENDED until {}", self.clock.since_start(until)));
        self.proxies.suspend(host, until);
        let slot = self.cluster.slot_mut(worker);
        slot.suspended_until = until;
        slot.paused_until = until;
        slot.partitioned_until = until;
        slot.is_one_way_partition = false;
    }

    fn hang_engine(&mut self, host: usize, until: u64) {
        self.stats.engine_hangs += 1;
        let until_shown = self.clock.since_start(until);
        self.log(ProcessId::Worker(host), format_args!("its engine HANGS until {until_shown}"));
        self.faults.engine_hangs_until[host] = until;
    }

    fn shut_down(&mut self, process: ProcessId, until: u64) {
        let slot = self.cluster.slot_mut(process);
        if let Some(running) = &slot.process {
            running.shutdown.cancel();
            slot.down_until = until;
            self.stats.shutdowns += 1;
            self.log(process, format_args!("SHUTS DOWN until {}", self.clock.since_start(until)));
        }
    }
}

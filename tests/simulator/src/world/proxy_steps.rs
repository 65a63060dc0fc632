//! The steps of proxies: they start, fail, and let requests in.

use engine::Container;
use proxy::gate::EnterError;

use crate::machine::process_id::ProcessId;
use crate::machine::random::Random;
use crate::workload::addresses;
use crate::workload::proxies::SimulatedRequest;
use crate::world::state::World;

/// A stall of the whole machine, in which a worker may have stopped waiting.
const STALL: u64 = 100;
/// Per host and thousand seconds.
const REQUEST_RATE: u64 = 12_000;
/// Per proxy and thousand seconds.
const DISTURBANCE_RATE: u64 = 30;

impl World {
    pub(crate) fn progress_proxies(&mut self, elapsed: u64) {
        for host in 0..self.proxies.of_hosts.len() {
            let is_there = !self.cluster.slot(ProcessId::of_host(host)).is_removed;
            let (now, are_over) = (self.clock.now, self.faults.are_over);
            let proxy = &mut self.proxies.of_hosts[host];
            if elapsed >= STALL {
                proxy.answers_since = now;
            }
            if proxy.is_suspended {
                proxy.clock_lag += elapsed;
                proxy.is_suspended = proxy.is_paused(now);
            }
            if proxy.process.is_none() && is_there && (are_over || now >= proxy.down_until) {
                self.cluster.instance_count += 1;
                let instance = self.cluster.instance_count;
                let random = Random::new(self.proxies.random.next());
                let asks =
                    addresses::ask(self.bus.clone(), host, instance, random, self.proxies.told.learnt());
                proxy.start(instance, now - proxy.clock_lag, asks);
                self.log(ProcessId::Proxy(host), "starts");
            }
            let random = &mut self.proxies.random;
            if is_there && !are_over && random.next() % 1_000_000 < elapsed * DISTURBANCE_RATE {
                self.disturb_proxy(host);
            }
        }
    }

    fn disturb_proxy(&mut self, host: usize) {
        let random = &mut self.proxies.random;
        let until = self.clock.now + [random.between(1, 100), random.between(100, 8_000)][random.below(2)];
        let dies = random.per_mille(500);
        if dies {
            return self.kill_proxy(host, until);
        }
        let proxy = &mut self.proxies.of_hosts[host];
        proxy.paused_until = until.max(proxy.paused_until);
        let until = self.clock.since_start(until);
        self.log(ProcessId::Proxy(host), format_args!("PAUSED until {until}"));
    }

    /// It may not have saved that yet.
    pub(crate) fn kill_after_close(&mut self, host: usize) {
        if !self.faults.are_over && self.proxies.random.per_mille(100) {
            let until = self.clock.now + self.proxies.random.between(1, 100);
            self.kill_proxy(host, until);
        }
    }

    fn kill_proxy(&mut self, host: usize, until: u64) {
        self.proxies.of_hosts[host].kill(until);
        let until = self.clock.since_start(until);
        self.log(ProcessId::Proxy(host), format_args!("DIES until {until}"));
    }

    pub(crate) fn poll_proxies(&mut self, elapsed: u64) {
        let now = self.clock.now;
        for host in 0..self.proxies.of_hosts.len() {
            let proxy = &mut self.proxies.of_hosts[host];
            let running = proxy.process.as_ref().filter(|_| !proxy.is_paused(now));
            let Some(process) = running else {
                proxy.answers_since = now + 1;
                continue;
            };
            process.poll(now - proxy.clock_lag, || self.bus.lock().request_count);
            proxy.requests.retain(|request| now < request.ends_at && !request.pass.cut().has_come());
            if self.proxies.random.next() % 1_000_000 < elapsed * REQUEST_RATE {
                self.send_request(host);
            }
        }
        let told_twice = self.proxies.told.progress(now, self.clock.redis_now());
        self.checks.violations.extend(told_twice);
    }

    fn send_request(&mut self, host: usize) {
        let containers = self.cluster.hosts[host].containers();
        let random = &mut self.proxies.random;
        let Some(container) = random.pick(&containers) else { return };
        let takes = match random.below(20) {
            0 => u64::MAX / 2,
            1..4 => random.between(300, 4_000),
            _ => random.between(1, 300),
        };
        let Container { pod, assignment, .. } = container;
        let proxy = &mut self.proxies.of_hosts[host];
        match proxy.gates.enter(pod, assignment) {
            Ok(pass) => {
                proxy.requests.push(SimulatedRequest { pass, ends_at: self.clock.now + takes });
                self.stats.let_in += 1;
                self.check_let_in(host, pod, assignment);
            }
            Err(EnterError::Closed) if self.switches.open_gates => self.check_let_in(host, pod, assignment),
            Err(EnterError::Closed) => self.stats.refused_by_gates += 1,
            Err(EnterError::Unknown) => {}
        }
    }
}

//! A pod gets its SIGTERM after its last request, and no request is let in after that.

use engine::Container;
use model::ids::{AssignmentId, PodId};

use crate::checks::ending_pods::Ending;
use crate::machine::bus::{EngineRequest, HostCall};
use crate::machine::host::{SimulatedHost, must_not_run_twice};
use crate::world::state::World;

/// In milliseconds: ten seconds for requests to leftovers (longer than `DRAIN`), and the time to connect.
const LONGEST_WAIT: u64 = 10_000 + 2_000;
/// In milliseconds, of a starting worker, for containers whose pods must not run twice.
const LEFTOVER_GRACE: u64 = 1_000;
/// In milliseconds.
const CLOSED_BESIDE: u64 = 1_000;

impl World {
    /// Also by a restarted proxy.
    pub(crate) fn check_let_in(&mut self, host: usize, pod: &PodId, assignment: &AssignmentId) {
        let ending = self.proxies.ending.0.get(&(host, assignment.clone()));
        if ending.is_some_and(|ending| ending.is_closed && self.clock.now > ending.since) {
            let name = pod.short();
            self.checks.violations.push(format!("gate: a request to pod {name} is let in after its SIGTERM"));
        }
    }

    pub(crate) fn check_gate(&mut self, host: usize, request: &EngineRequest) {
        if !self.proxies.are_there() {
            return;
        }
        let (HostCall::Stop(handle, _) | HostCall::Halt(handle)) = &request.call else { return };
        let running = self.cluster.hosts[host].running();
        let Some(container) = running.into_iter().find(|container| container.handle == *handle) else {
            return;
        };
        // Its worker has died, and the next one may want the pod to run.
        if request.reply.is_closed() {
            return;
        }
        let in_flight = self.proxies.in_flight(host, &container.assignment);
        let is_closed = self.proxies.answers_since(host) + LONGEST_WAIT < self.clock.now;
        let is_at_once = is_stopped_at_once(&container, &request.call, &self.cluster.hosts[host]);
        let since = self.clock.now + if is_at_once { CLOSED_BESIDE } else { 0 };
        let of = (host, container.assignment.clone());
        self.proxies.ending.0.entry(of).or_insert(Ending { is_closed, since });
        let pod = container.pod.short();
        self.log(request.process, format_args!("SIGTERM to {pod}, with {in_flight} requests in flight"));
        self.kill_after_close(host);
        if in_flight > 0 && is_closed && !is_at_once {
            let found = format!("gate: pod {pod} gets its SIGTERM with {in_flight} requests in flight");
            self.checks.violations.push(found);
        }
    }

    pub(crate) fn note_end(&mut self, host: usize, handle: &str) {
        if !self.proxies.are_there() {
            return;
        }
        let running = self.cluster.hosts[host].running();
        let is_left = |assignment: &AssignmentId| running.iter().any(|one| one.assignment == *assignment);
        let still_runs = running.iter().find(|one| one.handle == handle).map(|one| &one.assignment);
        self.proxies.ending.0.retain(|(of, assignment), _| {
            *of != host || still_runs != Some(assignment) && is_left(assignment)
        });
    }
}

/// The pod may run elsewhere and must not run twice.
fn is_stopped_at_once(container: &Container, call: &HostCall, host: &SimulatedHost) -> bool {
    let is_brief = matches!(call, HostCall::Stop(_, grace) if *grace <= LEFTOVER_GRACE);
    must_not_run_twice(container) && (is_brief || !host.has_lease())
}

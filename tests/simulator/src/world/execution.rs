//! Picks one of the waiting requests, decides its fate, and executes it.

use std::io::ErrorKind;

use engine::RuntimeError;
use model::node::ResourceIds;
use store::RedisCommand;

use crate::machine::bus::{EngineReply, EngineRequest, HostCall, RedisRequest};
use crate::machine::process_id::ProcessId;
use crate::world::state::World;

const ENGINE_TIMEOUT: u64 = 10_000;

enum StepCandidate {
    Redis(usize),
    Engine(usize),
}

enum Delivery {
    Executed,
    Refused,
    ReplyLost,
    Unanswered { is_executed: bool },
    Delayed(u64),
}

impl World {
    pub(crate) fn has_candidates(&self) -> bool {
        !self.candidates(1).is_empty()
    }

    fn candidates(&self, limit: usize) -> Vec<StepCandidate> {
        let (now, faults) = (self.clock.now, &self.faults);
        let bus = self.bus.lock();
        let mut seen_connections = Vec::new();
        let mut candidates = Vec::new();
        for (index, request) in bus.redis_requests.iter().enumerate() {
            if candidates.len() >= limit {
                return candidates;
            }
            // Requests of one connection are executed in order.
            let is_first = !seen_connections.contains(&request.connection);
            seen_connections.push(request.connection);
            let slot = self.cluster.slot(request.process);
            let is_cut_off = slot.is_partitioned(now) && !slot.is_one_way_partition;
            let is_deliverable =
                now >= faults.redis_stalled_until && now >= request.delayed_until && !is_cut_off;
            if is_first && (faults.are_over || is_deliverable) && !self.blocks(request) {
                candidates.push(StepCandidate::Redis(index));
            }
        }
        for (index, request) in bus.engine_requests.iter().enumerate() {
            let hangs = request.process.host().is_some_and(|host| now < faults.engine_hangs_until[host]);
            let is_timed_out = now > request.sent_at + ENGINE_TIMEOUT;
            let is_due = now >= request.delayed_until;
            if is_timed_out || (is_due && (faults.are_over || !hangs)) {
                candidates.push(StepCandidate::Engine(index));
            }
        }
        candidates
    }

    fn blocks(&self, request: &RedisRequest) -> bool {
        let Some(pop) = blocking_pop(request).filter(|_| !request.is_abandoned) else { return false };
        let source = String::from_utf8_lossy(&pop[1]);
        let is_empty = self.observed.payloads_in(&source).is_empty();
        is_empty && self.clock.now < request.sent_at + block_millis(pop)
    }

    pub(crate) fn execute_next(&mut self) -> Option<ProcessId> {
        self.drop_abandoned_requests();
        let candidates = self.candidates(usize::MAX);
        if candidates.is_empty() {
            return None;
        }
        match candidates[self.random.below(candidates.len())] {
            StepCandidate::Redis(index) => {
                let request = self.bus.lock().redis_requests.remove(index);
                let process = request.process;
                self.deliver(request);
                Some(process)
            }
            StepCandidate::Engine(index) => {
                let request = self.bus.lock().engine_requests.remove(index);
                let process = request.process;
                self.answer_engine_request(request);
                Some(process)
            }
        }
    }

    /// Some reach Redis later. Those of the API never do: clients repeat their operations, and an old one
    /// must not follow a newer one.
    fn drop_abandoned_requests(&mut self) {
        let mut bus = self.bus.lock();
        let mut index = 0;
        while let Some(request) = bus.redis_requests.get_mut(index) {
            if !request.reply.is_closed() || request.is_abandoned {
                index += 1;
                continue;
            }
            let mut stays_in_transit =
                self.random.per_mille(300) && request.process != ProcessId::Api && !self.faults.are_over;
            stays_in_transit &= blocking_pop(request).is_none() || !self.blocks(request);
            if stays_in_transit {
                request.is_abandoned = true;
                request.delayed_until = self.clock.now + self.random.between(0, self.timing.dead);
                index += 1;
            } else {
                bus.redis_requests.remove(index);
            }
        }
        drop(bus);
        self.network.unanswered.retain(|request| !request.reply.is_closed());
    }

    fn choose_delivery(&mut self, request: &RedisRequest) -> Delivery {
        if self.faults.are_over || request.is_abandoned {
            return Delivery::Executed;
        }
        if self.network.silent_connections.contains(&request.connection) {
            return Delivery::Unanswered { is_executed: self.random.per_mille(500) };
        }
        if self.cluster.slot(request.process).is_partitioned(self.clock.now) {
            return Delivery::Unanswered { is_executed: true };
        }
        match self.random.next() % 1000 / self.faults.rate.max(1) {
            _ if self.faults.rate == 0 => Delivery::Executed,
            0 => Delivery::Refused,
            1..=3 => Delivery::ReplyLost,
            4 => Delivery::Unanswered { is_executed: true },
            5 => Delivery::Unanswered { is_executed: false },
            6..=9 => {
                let longest = if self.random.per_mille(300) { 8000 } else { 1500 };
                Delivery::Delayed(self.random.between(10, longest))
            }
            _ => Delivery::Executed,
        }
    }

    fn deliver(&mut self, mut request: RedisRequest) {
        let process = request.process;
        if request.is_abandoned {
            self.stats.late += 1;
            self.log(process, "late:");
            self.execute(&request);
            return;
        }
        match self.choose_delivery(&request) {
            Delivery::Executed => {
                let replies = self.execute(&request);
                drop(request.reply.send(Ok(replies)));
            }
            Delivery::Refused => {
                self.stats.refused += 1;
                self.log(process, format_args!("{} -> refused", first_command(&request.commands)));
                self.break_connection(request);
            }
            Delivery::ReplyLost => self.execute_and_lose_reply(request),
            Delivery::Unanswered { is_executed } => {
                self.stats.unanswered += 1;
                if is_executed {
                    self.execute(&request);
                    self.log(process, "  is not answered");
                } else {
                    let command = first_command(&request.commands);
                    self.log(process, format_args!("{command} -> lost in transit"));
                }
                self.network.silent_connections.insert(request.connection);
                self.network.unanswered.push(request);
            }
            Delivery::Delayed(millis) => {
                let command = first_command(&request.commands);
                self.log(process, format_args!("{command} is delayed by {millis} ms"));
                request.delayed_until = self.clock.now + millis;
                self.bus.lock().redis_requests.insert(0, request);
            }
        }
    }

    fn execute_and_lose_reply(&mut self, request: RedisRequest) {
        self.stats.lost_replies += 1;
        self.execute(&request);
        self.log(request.process, "  that reply is lost");
        self.break_connection(request);
    }

    pub(crate) fn delay_script(&mut self, script: &str, process: ProcessId, until: u64) -> bool {
        let Some(index) = self.find_script_call(script, process) else { return false };
        self.bus.lock().redis_requests[index].delayed_until = until;
        true
    }

    /// False without such a call, or if it is not the next of its connection.
    pub(crate) fn lose_reply_of(&mut self, script: &str, process: ProcessId) -> bool {
        let Some(index) = self.find_script_call(script, process) else { return false };
        let mut bus = self.bus.lock();
        let connection = bus.redis_requests[index].connection;
        if bus.redis_requests[..index].iter().any(|other| other.connection == connection) {
            return false;
        }
        let request = bus.redis_requests.remove(index);
        drop(bus);
        self.execute_and_lose_reply(request);
        true
    }

    fn find_script_call(&self, script: &str, process: ProcessId) -> Option<usize> {
        let is_call = |request: &RedisRequest| {
            let hash = request.commands.first().and_then(|command| command.get(1));
            let called = hash.and_then(|hash| self.scripts.get(hash));
            request.process == process && called.is_some_and(|(called, _)| called.name == script)
        };
        self.bus.lock().redis_requests.iter().position(is_call)
    }

    fn break_connection(&mut self, request: RedisRequest) {
        let mut bus = self.bus.lock();
        let connection = request.connection;
        bus.broken_connections.push(connection);
        drop(request.reply.send(Err(ErrorKind::ConnectionReset.into())));
        let is_concerned = |other: &mut RedisRequest| other.connection == connection && !other.is_abandoned;
        for other in bus.redis_requests.extract_if(.., is_concerned) {
            drop(other.reply.send(Err(ErrorKind::ConnectionReset.into())));
        }
    }

    pub(crate) fn break_all_connections(&mut self) {
        let mut bus = self.bus.lock();
        for request in std::mem::take(&mut bus.redis_requests) {
            bus.broken_connections.push(request.connection);
            drop(request.reply.send(Err(ErrorKind::ConnectionReset.into())));
        }
        bus.break_all_connections();
    }

    fn answer_engine_request(&mut self, mut request: EngineRequest) {
        let process = request.process;
        let Some(host) = process.host() else { return };
        let now = self.clock.now;
        if now > request.sent_at + ENGINE_TIMEOUT && now < self.faults.engine_hangs_until[host] {
            self.log(process, format_args!("{} -> the engine hangs", describe_call(&request.call)));
            if matches!(request.call, HostCall::Stop(..)) {
                // The decision counts even if the call has no effect.
                self.watch_engine(host, &request);
            }
            drop(request.reply.send(Err(RuntimeError::Engine("timed out".to_owned()))));
            return;
        }
        if let HostCall::Stop(_, grace) = request.call
            && request.delayed_until == request.sent_at
            && grace > 0
        {
            // The process takes a while to end, at most its grace period.
            self.watch_engine(host, &request);
            let delay = 1 + self.random.between(0, grace.min(3000));
            request.delayed_until = request.sent_at + delay;
            self.bus.lock().engine_requests.push(request);
            return;
        }
        let draw = match self.faults.are_over || self.faults.rate == 0 {
            true => 1000,
            false => self.random.next() % 1000 / self.faults.rate,
        };
        self.stats.engine_calls += 1;
        self.watch_engine(host, &request);
        let engine = &self.cluster.hosts[host];
        let error = |message: &str| Err(RuntimeError::Engine(message.to_owned()));
        let mut reply = match draw {
            0..=3 => error("not reachable"),
            4..=6 => engine.execute(&request.call, false).and_then(|_| error("interrupted")),
            7..=9 => engine.execute(&request.call, true).and_then(|_| error("reply lost")),
            _ => engine.execute(&request.call, true),
        };
        if let Ok(EngineReply::Containers(all)) = &mut reply
            && self.switches.hidden_ids
        {
            all.iter_mut().for_each(|container| container.resources = ResourceIds::default());
        }
        if let HostCall::Stop(handle, _) | HostCall::Halt(handle) = &request.call {
            self.note_end(host, handle);
        }
        self.stats.starts += u64::from(matches!(request.call, HostCall::Run(_)) && reply.is_ok());
        if !matches!(request.call, HostCall::Ping) || reply.is_err() {
            let (call, outcome) = (describe_call(&request.call), describe_reply(&reply));
            self.log(process, format_args!("{call} -> {outcome}"));
        }
        drop(request.reply.send(reply));
    }
}

fn describe_call(call: &HostCall) -> String {
    match call {
        HostCall::Ping => "ping the engine".to_owned(),
        HostCall::List => "list containers".to_owned(),
        HostCall::Image(image) => format!("image {image}"),
        HostCall::Run(request) => format!("RUN {}", request.identity.pod.short()),
        HostCall::Restart(handle) => format!("RESTART {handle}"),
        HostCall::Stop(handle, _) => format!("STOP {handle}"),
        HostCall::Halt(handle) => format!("HALT {handle}"),
        HostCall::Check(handle) => format!("check {handle}"),
    }
}

fn describe_reply(reply: &Result<EngineReply, RuntimeError>) -> String {
    match reply {
        Ok(EngineReply::Containers(all)) => format!("{} containers", all.len()),
        Ok(EngineReply::ExitCode(code)) => format!("exit code {code}"),
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn first_command(commands: &[RedisCommand]) -> String {
    commands.first().map(|words| String::from_utf8_lossy(&words[0]).into_owned()).unwrap_or_default()
}

fn blocking_pop(request: &RedisRequest) -> Option<&RedisCommand> {
    request.commands.first().filter(|words| words[0] == b"BRPOPLPUSH")
}

fn block_millis(pop: &RedisCommand) -> u64 {
    let seconds: f64 = String::from_utf8_lossy(&pop[3]).parse().unwrap();
    (seconds * 1000.0) as u64
}

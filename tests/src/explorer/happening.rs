//! What happens of all that was asked: the explorer picks one thing, decides its fate, and carries it out.

use std::io::ErrorKind;

use common::store::Words;
use worker::runtime::RuntimeError;

use super::bus::{Asked, Call, Request};
use super::host::Answered;
use super::who::Who;
use super::world::World;

/// An engine that does not answer is given up after so long.
const ENGINE_PATIENCE: u64 = 10_000;

enum Ready {
    Request(usize),
    Call(usize),
}

enum Fate {
    Done,
    /// It does not reach Redis, and its sender hears so.
    Refused,
    /// It is carried out, and the connection breaks before the answer.
    ReplyLost,
    /// Nobody hears of it again; it may have been carried out.
    Unanswered(bool),
    /// It is on its way for so long.
    Held(u64),
}

impl World {
    pub(super) fn is_anything_ready(&self) -> bool {
        !self.ready().is_empty()
    }

    /// All that may happen next.
    fn ready(&self) -> Vec<Ready> {
        let bus = self.bus.lock();
        let mut lines = Vec::new();
        let mut ready = Vec::new();
        for (index, request) in bus.requests.iter().enumerate() {
            // What came before it over the same connection comes first.
            let first = !lines.contains(&request.line);
            lines.push(request.line);
            let seat = &self.seats[request.who.index()];
            let cut = self.now < seat.cut_until && !seat.deaf;
            let reaches = self.now >= self.stalled_until && self.now >= request.held_until && !cut;
            if first && (self.settles || reaches) && !self.blocks(request) {
                ready.push(Ready::Request(index));
            }
        }
        for (index, call) in bus.calls.iter().enumerate() {
            let hangs = call.who.host().is_some_and(|host| self.now < self.engine_hangs_until[host]);
            let gives_up = self.now > call.since + ENGINE_PATIENCE;
            if (self.settles && self.now >= call.held_until)
                || gives_up
                || (!hangs && self.now >= call.held_until)
            {
                ready.push(Ready::Call(index));
            }
        }
        ready
    }

    /// A pop that finds nothing waits for its time to be over.
    fn blocks(&self, request: &Request) -> bool {
        let Some(pop) = blocking_pop(request).filter(|_| !request.late) else { return false };
        let source = String::from_utf8_lossy(&pop[1]);
        self.view.in_key(&source).is_empty() && self.now < request.since + block_millis(pop)
    }

    /// One thing happens, if anything may. Gives whom it concerns.
    pub(super) fn happen(&mut self) -> Option<Who> {
        self.bury_abandoned();
        let ready = self.ready();
        if ready.is_empty() {
            return None;
        }
        match ready[self.random.below(ready.len())] {
            Ready::Request(index) => {
                let request = self.bus.lock().requests.remove(index);
                let who = request.who;
                self.decide(request);
                Some(who)
            }
            Ready::Call(index) => {
                let call = self.bus.lock().calls.remove(index);
                let who = call.who;
                self.answer(call);
                Some(who)
            }
        }
    }

    /// What its sender gave up, or died over, may be on its way all the same. Users repeat their wishes: what they gave
    /// up must not come after what they wished since.
    fn bury_abandoned(&mut self) {
        let mut bus = self.bus.lock();
        let mut index = 0;
        while let Some(request) = bus.requests.get_mut(index) {
            let abandoned = request.reply.is_closed() && !request.late;
            if !abandoned {
                index += 1;
                continue;
            }
            let mut lives_on = self.random.per_mille(300) && request.who != Who::Api && !self.settles;
            lives_on &= blocking_pop(request).is_none() || !self.blocks(request);
            if lives_on {
                request.late = true;
                request.held_until = self.now + self.random.between(0, self.times.dead);
                index += 1;
            } else {
                bus.requests.remove(index);
            }
        }
        drop(bus);
        self.limbo.retain(|request| !request.reply.is_closed());
    }

    fn fate(&mut self, request: &Request) -> Fate {
        let seat = &self.seats[request.who.index()];
        if self.settles || request.late {
            return Fate::Done;
        }
        if self.mute.contains(&request.line) {
            return Fate::Unanswered(self.random.per_mille(500));
        }
        if self.now < seat.cut_until {
            return Fate::Unanswered(true);
        }
        match self.random.next() % 1000 / self.fury.max(1) {
            _ if self.fury == 0 => Fate::Done,
            0 => Fate::Refused,
            1..=3 => Fate::ReplyLost,
            4 => Fate::Unanswered(true),
            5 => Fate::Unanswered(false),
            6..=9 => {
                // Mostly a moment; sometimes so long that the sender gives it up.
                let most = if self.random.per_mille(300) { 8000 } else { 1500 };
                Fate::Held(self.random.between(10, most))
            }
            _ => Fate::Done,
        }
    }

    fn decide(&mut self, mut request: Request) {
        let who = request.who;
        if request.late {
            self.stats.late += 1;
            self.say(who, "late:");
            self.carry_out(&request);
            return;
        }
        match self.fate(&request) {
            Fate::Done => {
                let replies = self.carry_out(&request);
                // Nobody there any more: it was carried out all the same.
                drop(request.reply.send(Ok(replies)));
            }
            Fate::Refused => {
                self.stats.refused += 1;
                self.say(who, format!("{} -> refused", name(&request.commands)));
                self.break_line(request);
            }
            Fate::ReplyLost => {
                self.stats.lost_replies += 1;
                self.carry_out(&request);
                self.say(who, "  that reply is lost");
                self.break_line(request);
            }
            Fate::Unanswered(done) => {
                self.stats.unanswered += 1;
                if done {
                    self.carry_out(&request);
                    self.say(who, "  is not answered");
                } else {
                    self.say(who, format!("{} -> lost on its way", name(&request.commands)));
                }
                self.mute.insert(request.line);
                self.limbo.push(request);
            }
            Fate::Held(millis) => {
                self.say(who, format!("{} is held up for {millis} ms", name(&request.commands)));
                request.held_until = self.now + millis;
                self.bus.lock().requests.insert(0, request);
            }
        }
    }

    /// Holds up the request for this script that somebody has made, until that time. False when there is none.
    pub(super) fn hold_script(&mut self, script: &str, who: Who, until: u64) -> bool {
        let Some(index) = self.asked_for(script, who) else { return false };
        self.bus.lock().requests[index].held_until = until;
        true
    }

    /// This script, where somebody has asked for it and it is next on its connection, is carried out now and its reply is
    /// lost. False when it is not.
    pub(super) fn lose_reply_of(&mut self, script: &str, who: Who) -> bool {
        let Some(index) = self.asked_for(script, who) else { return false };
        let mut bus = self.bus.lock();
        if bus.requests[..index].iter().any(|other| other.line == bus.requests[index].line) {
            return false;
        }
        let request = bus.requests.remove(index);
        drop(bus);
        self.stats.lost_replies += 1;
        self.carry_out(&request);
        self.say(who, "  that reply is lost");
        self.break_line(request);
        true
    }

    /// Which of the requests that wait is for this script.
    fn asked_for(&self, script: &str, who: Who) -> Option<usize> {
        let is_asked = |request: &Request| {
            let hash = request.commands.first().and_then(|words| words.get(1));
            let asked = hash.and_then(|hash| self.scripts.get(hash));
            request.who == who && asked.is_some_and(|(name, _)| *name == script)
        };
        self.bus.lock().requests.iter().position(is_asked)
    }

    /// The connection breaks: whoever waits for an answer on it hears so.
    fn break_line(&mut self, request: Request) {
        let mut bus = self.bus.lock();
        bus.broken.push(request.line);
        let line = request.line;
        drop(request.reply.send(Err(ErrorKind::ConnectionReset.into())));
        for other in bus.requests.extract_if(.., |other| other.line == line && !other.late) {
            drop(other.reply.send(Err(ErrorKind::ConnectionReset.into())));
        }
    }

    /// The server is gone, and with it all connections.
    pub(super) fn break_all_lines(&mut self) {
        let mut bus = self.bus.lock();
        for request in std::mem::take(&mut bus.requests) {
            bus.broken.push(request.line);
            drop(request.reply.send(Err(ErrorKind::ConnectionReset.into())));
        }
        bus.break_all();
    }

    /// An engine answers, or does not.
    fn answer(&mut self, mut call: Call) {
        let who = call.who;
        let Some(host) = who.host() else { return };
        if self.now > call.since + ENGINE_PATIENCE && self.now < self.engine_hangs_until[host] {
            self.say(who, format!("{} -> the engine hangs", call_name(&call.asked)));
            drop(call.reply.send(Err(RuntimeError::Engine("it hangs".to_owned()))));
            return;
        }
        if let Asked::Stop(_, grace) = &call.asked
            && call.held_until == call.since
            && *grace > 0
        {
            // Until its process has ended, or is killed.
            call.held_until = call.since + 1 + self.random.between(0, (*grace).min(3000));
            self.bus.lock().calls.push(call);
            return;
        }
        let luck = if self.settles || self.fury == 0 { 1000 } else { self.random.next() % 1000 / self.fury };
        self.stats.engine_calls += 1;
        let error = |words: &str| Err(RuntimeError::Engine(words.to_owned()));
        let answer = match luck {
            0..=3 => error("it is not there"),
            // Made, and not started; or made, started, and not told.
            4..=6 => self.hosts[host].carry_out(&call.asked, false).and_then(|_| error("it broke off")),
            7..=9 => self.hosts[host].carry_out(&call.asked, true).and_then(|_| error("its answer was lost")),
            _ => self.hosts[host].carry_out(&call.asked, true),
        };
        self.stats.starts += u64::from(matches!(call.asked, Asked::Run(_)) && answer.is_ok());
        let said = match &answer {
            Ok(Answered::Containers(all)) => format!("{} containers", all.len()),
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        if !matches!(call.asked, Asked::Ping) || answer.is_err() {
            self.say(who, format!("{} -> {said}", call_name(&call.asked)));
        }
        drop(call.reply.send(answer));
    }
}

fn call_name(asked: &Asked) -> String {
    match asked {
        Asked::Ping => "ping the engine".to_owned(),
        Asked::List => "list containers".to_owned(),
        Asked::Image(image) => format!("image {image}"),
        Asked::Run(request) => format!("RUN {}", request.identity.pod.short()),
        Asked::Restart(handle) => format!("RESTART {handle}"),
        Asked::Stop(handle, _) => format!("STOP {handle}"),
    }
}

fn name(commands: &[Words]) -> String {
    commands.first().map(|words| String::from_utf8_lossy(&words[0]).into_owned()).unwrap_or_default()
}

fn blocking_pop(request: &Request) -> Option<&Words> {
    request.commands.first().filter(|words| words[0] == b"BRPOPLPUSH")
}

fn block_millis(pop: &Words) -> u64 {
    let seconds: f64 = String::from_utf8_lossy(&pop[3]).parse().unwrap();
    (seconds * 1000.0) as u64
}

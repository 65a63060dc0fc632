//! Faults: what strikes, whom, and when.

use worker::runtime::ContainerState;

use super::view::{Pod, short};
use super::who::{PROCESSES, WORKERS, Who};
use super::world::World;

impl World {
    /// What may happen within these milliseconds.
    pub(super) fn strike(&mut self, within: u64) {
        if self.fury == 0 {
            return;
        }
        if self.has_failovers {
            self.replicate(within);
        }
        if self.chance(within, 60 * self.fury) {
            let who = Who::at(self.random.below(PROCESSES));
            self.hit(who);
        }
        if self.chance(within, 6 * self.fury) {
            self.stalled_until = self.now + self.random.between(100, 9000);
            self.stats.stalls += 1;
            self.say("redis", format!("STANDS STILL until {}", self.stalled_until));
        }
        if self.chance(within, 8 * self.fury) {
            self.lose_a_payload();
        }
        // Rather where it hurts: a worker that stands still while it runs what is somebody else's by now.
        if self.chance(within, 500) {
            let stale = self.runs_what_is_not_its_own();
            if let Some(host) = self.random.pick(&stale).copied() {
                self.hold(host);
            }
        }
    }

    /// True so many times in a thousand seconds, whatever the steps.
    fn chance(&mut self, within: u64, times: u64) -> bool {
        self.random.next() % 1_000_000 < within * times
    }

    /// A replica falls behind, and some time later becomes the master: rather when something is going on.
    fn replicate(&mut self, within: u64) {
        if self.master_changed.is_some_and(|at| self.now < at + 2 * self.times.pause) {
            return;
        }
        if self.past.is_none() {
            let eventful = !self.view.in_key("sq").is_empty() || self.somebody_is_silent();
            if self.chance(within, if eventful { 400 } else { 40 }) {
                self.remember();
            }
        } else {
            let loses = self.would_lose_a_start();
            if self.chance(within, if loses { 600 } else { 80 }) {
                self.fail_over();
                // Whatever broke the master may have hit others.
                if self.random.per_mille(500) {
                    let who = Who::Worker(self.random.below(WORKERS));
                    self.hit(who);
                }
            }
        }
    }

    /// A worker stands still, or can not reach Redis, for about as long as a lease lasts.
    fn hold(&mut self, host: usize) {
        let until = self.now + self.random.between(self.times.fence / 8, 2 * self.times.fence);
        if self.random.per_mille(600) {
            self.pause(Who::Worker(host), until);
        } else {
            self.cut_off(Who::Worker(host), until);
        }
    }

    fn hit(&mut self, who: Who) {
        let times = self.times;
        // Either it is hardly noticed, or it is declared dead.
        let long = self.random.per_mille(500);
        let (least, most) = if long { (times.dead, 4 * times.dead) } else { (1, times.fence) };
        let until = self.now + self.random.between(least, most);
        match (self.random.below(12), who) {
            (0..3, _) => self.crash(who, until),
            (3, Who::Worker(host)) => self.crash_host(host, until),
            (4, Who::Worker(host)) => self.lose_a_container(host),
            (5, Who::Worker(host)) => self.suspend(host, until),
            (6, Who::Worker(host)) => {
                self.stats.hangs += 1;
                self.say(who, format!("its engine HANGS until {until}"));
                self.engine_hangs_until[host] = until;
            }
            (7, _) => self.end(who, until),
            (3..6 | 8..10, _) => self.pause(who, until),
            _ => self.cut_off(who, until),
        }
    }

    /// Somebody removes a payload by hand: reconcile has to find that it is nowhere.
    fn lose_a_payload(&mut self) {
        let mut there = Vec::new();
        for (key, payloads) in
            self.view.payloads.iter().filter(|(key, _)| !matches!(key.as_str(), "dq" | "uq"))
        {
            for raw in payloads {
                let uuid = self.heads.pod_of(raw).unwrap_or_default();
                if self.view.pods.get(uuid).is_some_and(Pod::is_live) {
                    there.push((key.clone(), raw.clone(), uuid.to_owned()));
                }
            }
        }
        let Some((key, raw, uuid)) = self.random.pick(&there).cloned() else { return };
        if key.starts_with("cs:") {
            self.change(&[b"SREM", key.as_bytes(), &raw], &[&key]);
        } else {
            self.change(&[b"LREM", key.as_bytes(), b"1", &raw], &[&key]);
        }
        self.stats.lost_payloads += 1;
        self.say("hand", format!("removes {} from {key}", short(&uuid)));
        self.desk.lock().wishes.lose(&uuid);
        self.observe();
    }

    fn lose_a_container(&mut self, host: usize) {
        let containers = self.hosts[host].running();
        let Some(container) = self.random.pick(&containers).cloned() else { return };
        let code = [None, Some(0), Some(1)][self.random.below(3)];
        let what = format!("container of {} ends: {code:?}", container.pod.short());
        self.say(Who::Worker(host), what);
        self.hosts[host].lose(&container.handle, code);
        debug_assert_eq!(container.state, ContainerState::Running);
    }

    pub(super) fn pause(&mut self, who: Who, until: u64) {
        self.stats.pauses += 1;
        self.say(who, format!("PAUSE until {until}"));
        self.seats[who.index()].paused_until = until;
    }

    pub(super) fn cut_off(&mut self, who: Who, until: u64) {
        self.stats.partitions += 1;
        // Either nothing passes, or what it says passes and the answers do not.
        let deaf = self.random.per_mille(250);
        self.say(who, format!("CUT OFF until {until}{}", if deaf { ", one way" } else { "" }));
        let seat = &mut self.seats[who.index()];
        (seat.cut_until, seat.deaf) = (until, deaf);
    }

    fn crash(&mut self, who: Who, until: u64) {
        self.stats.crashes += 1;
        self.say(who, format!("CRASH until {until}"));
        self.kill(who, until);
    }

    fn crash_host(&mut self, host: usize, until: u64) {
        self.stats.host_crashes += 1;
        let who = Who::Worker(host);
        self.say(who, format!("HOST CRASH until {until}"));
        self.kill(who, until);
        self.bus.lock().calls.retain(|call| call.who != who);
        self.hosts[host].reboot();
        self.booted[host] = self.now - self.random.between(0, 1_000_000);
    }

    /// The machine sleeps: its processes stand still, and so does their clock, but not the one that counts suspend.
    fn suspend(&mut self, host: usize, until: u64) {
        self.stats.suspensions += 1;
        let who = Who::Worker(host);
        self.say(who, format!("SUSPENDED until {until}"));
        let seat = &mut self.seats[who.index()];
        seat.suspended_until = until;
        (seat.paused_until, seat.cut_until, seat.deaf) = (until, until, false);
    }

    /// It is asked to end in order, and started again later.
    fn end(&mut self, who: Who, until: u64) {
        if let Some(process) = &self.seats[who.index()].process {
            process.shutdown.cancel();
            self.stats.ends += 1;
            self.seats[who.index()].down_until = until;
            self.say(who, format!("asked to END until {until}"));
        }
    }
}

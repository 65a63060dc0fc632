//! The lives of processes: production code, started with what it gets from its surroundings; and who pushes by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::config::{Config, Sources, Timing};
use common::store::{LinkOptions, Store};
use worker::{Hands, Pace};

use super::api;
use super::bus::Network;
use super::process::Process;
use super::seat::Times;
use super::who::{PROCESSES, Who};
use super::world::World;

/// What a node can hold: CPU for so few pods of services that some have to wait when one node is gone,
const CPUS: &str = "2";
/// and beside those all that are pushed, which need none: what is wished fits, wherever somebody pushed what.
const PODS: &str = "8";
const MOST_PUSHED: usize = 4;

impl World {
    /// Starts what is down and whose time has come.
    pub(super) fn revive(&mut self) {
        for index in 0..PROCESSES {
            let seat = &self.seats[index];
            if seat.process.is_none() && (self.settles || self.now >= seat.down_until.max(seat.paused_until))
            {
                self.start(Who::at(index));
            }
        }
    }

    fn start(&mut self, who: Who) {
        self.lives += 1;
        let life = self.lives;
        let network = Network { bus: self.bus.clone(), who, life };
        let url = "redis://explored".parse().unwrap();
        let config = Arc::new(config(who, self.times, self.switches.fence_longer_than_dead));
        let clock = self.now - self.seats[who.index()].slept;
        let hands = who.host().map(|host| {
            let host = Arc::new(self.hosts[host].clone());
            if self.switches.no_startup_fence {
                host.blind();
            }
            Hands { runtime: host.clone(), clock: host.clone(), keeper: Some(host), pressure: || None }
        });
        let (desk, pace) = (self.desk.clone(), pace(self.times));
        self.say(who, format!("starts its life {life}"));
        let process = Process::start(life, clock, move |shutdown| async move {
            let store = Store::over(Arc::new(network), url, LinkOptions::default());
            match (who, hands) {
                (Who::Worker(_), Some(hands)) => {
                    // Whatever it says of its end: it is started again.
                    drop(worker::run_by_hand(config, store, hands, pace, shutdown).await);
                }
                (Who::Scheduler(_), _) => {
                    scheduler::run_with(config, store, shutdown).await.unwrap();
                }
                _ => tokio::select! {
                    () = api::serve(store, desk) => {}
                    () = shutdown.cancelled() => {}
                },
            }
        });
        self.seats[who.index()].process = Some(process);
    }

    /// It dies where it stands.
    pub(super) fn kill(&mut self, who: Who, until: u64) {
        let seat = &mut self.seats[who.index()];
        seat.down_until = until;
        if let Some(process) = seat.process.take() {
            self.bus.lock().listeners.retain(|listener| listener.life != process.life);
        }
    }

    /// LPUSH by hand: a pod, a pod for the second time, or nonsense; to be scheduled or to one worker.
    pub(super) fn push(&mut self, within: u64) {
        let wants = !self.desk.lock().content && self.random.next() % 1_000_000 < within * 250;
        if !wants {
            return;
        }
        let queue = match self.random.below(4) {
            0 => "sq".to_owned(),
            worker => format!("pq:w{worker}"),
        };
        let again = self.desk.lock().wishes.pushed();
        let known = again.len();
        if self.random.per_mille(300) {
            let junk = format!("junk{}", self.random.below(3));
            self.desk.lock().wishes.push_junk(&junk);
            return self.push_words(&queue, &junk, &junk);
        }
        let again = self.random.pick(&again).cloned();
        let uuid = match again {
            Some(uuid) if known >= MOST_PUSHED || self.random.per_mille(400) => uuid,
            _ => format!("p{}", self.now),
        };
        // The same pod has the same bytes each time.
        let kind = if uuid.ends_with(['0', '1', '2', '3', '4']) { "stop" } else { "keep" };
        let payload = format!(
            r#"{{"name":"pushed","uuid":"{uuid}","image":"{kind}:0","replica":0,"on_disconnect":"{kind}"}}"#
        );
        self.desk.lock().wishes.push(&uuid);
        self.known_pods.insert(uuid.clone());
        self.push_words(&queue, &payload, &uuid);
    }

    fn push_words(&mut self, queue: &str, payload: &str, name: &str) {
        self.say("hand", format!("LPUSH {queue} {name}"));
        self.change(&["LPUSH", queue, payload], &[queue]);
        self.observe();
    }
}

/// A worker's pace goes with the other times.
fn pace(times: Times) -> Pace {
    let millis = Duration::from_millis;
    Pace {
        sweep: millis(times.dead / 2),
        relist: millis(times.dead * 3 / 2),
        start_retry: millis(times.dead / 2),
        longest: millis(times.dead),
        ..Pace::default()
    }
}

fn config(who: Who, times: Times, fence_longer_than_dead: bool) -> Config {
    let name = who.to_string();
    let settings = [
        ("KUBELEET_NODE", name.as_str()),
        ("KUBELEET_CPUS", CPUS),
        ("KUBELEET_MEMORY", "1GiB"),
        ("KUBELEET_MAX_PODS", PODS),
        ("KUBELEET_RESTART_BACKOFF", "1s"),
    ];
    let flags: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sources = Sources {
        flags,
        environment: &|_| None,
        file: BTreeMap::new(),
        read_file: &|path| Err(format!("{path} is not for tests")),
        host_name: name.clone(),
    };
    let mut config = sources.config().unwrap();
    let millis = Duration::from_millis;
    config.timing = Timing {
        heartbeat: millis(times.heartbeat),
        fence_after: millis(if fence_longer_than_dead { 3 * times.dead } else { times.fence }),
        dead_after: millis(times.dead),
    };
    config
}

//! Runs pods with only the calls of API, scheduler and workers, for `scripts/instructions` to count Redis'
//! work: `redis_instructions <pods> <nodes>`.

#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Duration;

use kubeleet_tests::fixture::{ATTEMPTS, DEAD_AFTER, REQUEST};
use kubeleet_tests::{Fixture, LIMIT, Redis, eventually};
use model::ids::SchedulerId;
use model::network::ContainerNetwork;
use model::pod::payload::Payload;
use model::spec::HostPorts;
use store::{Ack, AckItem, AssignOutcome, Assignment, Claim, ClaimItem, ClaimReply, Session};

const ASSIGNED_AT_ONCE: usize = 250;
const CLAIMED_AT_ONCE: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (pods, nodes) = (arguments.next().unwrap(), arguments.next().unwrap());
    // Counts the writes of the append-only file, but not its syncs.
    let redis = Redis::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "no"]).await;
    let store = redis.store();
    let fixture = Fixture { redis, store, scheduler: SchedulerId::random(), proxy: None };

    let mut sessions = Vec::new();
    for n in 0..nodes {
        sessions.push(fixture.node(&format!("node-{n:03}")).await);
    }
    fixture.service("web", u32::try_from(pods).unwrap()).await;
    let placed = place(&fixture, &sessions, pods).await;
    let mut started = 0;
    for session in &sessions {
        started += start(session).await;
    }
    assert_eq!((placed, started), (pods, pods));

    let info: String = fixture.redis.cli(&["INFO", "server"]).await;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    println!("{}", version.unwrap());
    // Otherwise callgrind reports nothing.
    let _ = fixture.redis.try_cli::<()>(&["SHUTDOWN", "NOSAVE"]).await;
    eventually(LIMIT, "Redis ends", || async {
        if fixture.redis.is_running() { Err("it runs".to_owned()) } else { Ok(()) }
    })
    .await;
}

async fn place(fixture: &Fixture, sessions: &[Session], pods: usize) -> usize {
    let mut incarnations = Vec::new();
    for session in sessions {
        incarnations.push(fixture.store.node(session.node()).await.unwrap().unwrap().incarnation);
    }
    let (each, mut placed) = (pods.div_ceil(sessions.len()), 0);
    loop {
        let taken = fixture.store.take(&fixture.scheduler, ASSIGNED_AT_ONCE).await.unwrap();
        if taken.is_empty() {
            return placed;
        }
        let assignments = taken.into_iter().enumerate().map(|(p, raw)| {
            let n = (placed + p) / each;
            Assignment {
                payload: Payload::parse(raw).unwrap(),
                node: sessions[n].node().clone(),
                incarnation: incarnations[n].clone(),
                request: REQUEST,
                host_ports: HostPorts::default(),
                named: None,
                volumes: Vec::new(),
                seen_labels: None,
                counted: None,
            }
        });
        let assignments: Vec<_> = assignments.collect();
        let outcomes = fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &assignments).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, AssignOutcome::Assigned)), "{outcomes:?}");
        placed += assignments.len();
    }
}

async fn start(session: &Session) -> usize {
    let mut started = 0;
    loop {
        let popped = session.pop_more(CLAIMED_AT_ONCE).await.unwrap();
        if popped.is_empty() {
            return started;
        }
        let item = |raw| ClaimItem {
            payload: Payload::parse(raw).unwrap(),
            request: REQUEST,
            host_ports: HostPorts::default(),
        };
        let items: Vec<_> = popped.into_iter().map(item).collect();
        let reply = session.claim(&items, ATTEMPTS, Duration::ZERO).await.unwrap().unwrap();
        let ClaimReply::Claims(claims) = reply else { panic!("{reply:?}") };
        let ack = |(item, claim): (ClaimItem, Claim)| {
            let Claim::Start { assignment, .. } = claim else { panic!("{claim:?}") };
            let (network, starting) = (ContainerNetwork::default(), String::new());
            AckItem { payload: item.payload, assignment, network, starting }
        };
        let items: Vec<_> = items.into_iter().zip(claims).map(ack).collect();
        let acks = session.ack(&items).await.unwrap().unwrap();
        assert!(acks.iter().all(|ack| matches!(ack, Ack::Running)), "{acks:?}");
        started += acks.len();
    }
}

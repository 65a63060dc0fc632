//! Another server becomes the master.

use std::time::{Duration, Instant};

use redis::Value;

use super::super::super::error::StoreError;
use super::super::super::scripts::Call;
use super::super::{Durability, LinkHealth};
use super::server::{Server, available};
use super::{eventually, eventually_set, get, link, set};

fn follow(replica: &Server, master: &Server) {
    let _: Value = replica.ask(redis::cmd("REPLICAOF").arg("127.0.0.1").arg(master.port));
}

fn lead(server: &Server) {
    let _: Value = server.ask(redis::cmd("REPLICAOF").arg(&["NO", "ONE"]));
}

async fn until_in_sync(replica: &Server) {
    eventually("the replica is in sync", async || {
        let info: String = replica.ask(redis::cmd("INFO").arg("replication"));
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_demoted_master_is_not_written_to_and_not_kept() {
    if !available() {
        return;
    }
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let link = link(&server.url());
    set(&link, "a", "1").await.unwrap();
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    let mut pop = redis::cmd("BRPOPLPUSH");
    pop.arg("from").arg("to").arg(5);
    let start = Instant::now();
    let (popped, ()) = tokio::join!(own.query::<Value>(&pop), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        follow(&server, &other);
    });
    assert_eq!(popped, Err(StoreError::NotMaster));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(set(&link, "a", "2").await, Err(StoreError::NotMaster));
    assert!(matches!(link.dedicated(Duration::from_secs(7)).await, Err(StoreError::NotMaster)));
    lead(&server);
    eventually_set(&link, "a", "3").await;
}

#[tokio::test]
async fn a_replica_is_never_taken_for_the_master() {
    if !available() {
        return;
    }
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    follow(&server, &other);
    let link = link(&server.url());
    let read = link.query::<Value>(redis::cmd("GET").arg("a")).await;
    assert_eq!(read, Err(StoreError::NotMaster));
}

/// A master, a replica and three sentinels that agree on them.
struct Trio {
    master: Server,
    replica: Server,
    sentinels: Vec<Server>,
}

impl Trio {
    async fn start() -> Self {
        let (master, replica) = (Server::start(&[]), Server::start(&[]));
        follow(&replica, &master);
        until_in_sync(&replica).await;
        let sentinels: Vec<Server> = (0..3).map(|_| Server::sentinel(master.port)).collect();
        for sentinel in &sentinels {
            eventually("the sentinels know each other and the replica", async || {
                let facts: Vec<(String, String)> =
                    sentinel.ask(redis::cmd("SENTINEL").arg(&["master", "mymaster"]));
                let is = |key: &str, value: &str| facts.iter().any(|(k, v)| k == key && v == value);
                (is("num-other-sentinels", "2") && is("num-slaves", "1")).then_some(())
            })
            .await;
        }
        Self { master, replica, sentinels }
    }

    fn url(&self) -> String {
        let peers: Vec<String> =
            self.sentinels.iter().map(|peer| format!("127.0.0.1:{}", peer.port)).collect();
        format!("redis+sentinel://{}/mymaster", peers.join(","))
    }
}

#[tokio::test]
async fn sentinels_lead_to_the_new_master() {
    if !available() {
        return;
    }
    let mut trio = Trio::start().await;
    let link = link(&trio.url());
    set(&link, "before", "1").await.unwrap();
    let script = redis::Script::new("return redis.call('SET', KEYS[1], '1')");
    let durable = Call::unnamed(script.key("durable"));
    let wait = Duration::from_secs(5);
    assert_eq!(link.durable_script(&durable, wait).await.unwrap().1, Durability::Confirmed { replicas: 1 });

    trio.master.kill();
    let killed = Instant::now();
    eventually_set(&link, "after", "1").await;
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    assert_eq!(get(&link, "before").await, Some(b"1".to_vec()));
    let new = format!("127.0.0.1:{}", trio.replica.port);
    assert!(matches!(&*link.health().borrow(), LinkHealth::Connected { master, .. } if *master == new));

    // The dead one is a known replica now: it may come back and be promoted, and it does not have this.
    let durability = link.durable_script(&durable, Duration::from_millis(100)).await.unwrap().1;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 0, known: 1 });
}

#[tokio::test]
async fn a_frozen_master_is_left_for_the_new_one_by_all_connections() {
    if !available() {
        return;
    }
    let trio = Trio::start().await;
    let link = link(&trio.url());
    let mut own = link.dedicated(Duration::from_secs(60)).await.unwrap();
    let mut pop = redis::cmd("BRPOPLPUSH");
    pop.arg("from").arg("to").arg(55);
    trio.master.freeze();
    let start = Instant::now();
    let popped = own.query::<Value>(&pop).await;
    assert_eq!(popped, Err(StoreError::NotMaster));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    eventually_set(&link, "after", "1").await;
    assert!(matches!(own.query::<Value>(&redis::cmd("PING")).await, Err(StoreError::NotMaster)));
    assert!(link.dedicated(Duration::from_secs(60)).await.is_ok());

    // The old one wakes up and believes for a moment that it is the master still.
    trio.master.thaw();
    for _ in 0..20 {
        eventually_set(&link, "later", "1").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let written: Option<String> = trio.replica.ask(redis::cmd("GET").arg("later"));
    assert_eq!(written.as_deref(), Some("1"));
}

#[tokio::test]
async fn one_sentinel_is_enough_to_find_the_master_and_a_wrong_name_is_named() {
    if !available() {
        return;
    }
    let mut trio = Trio::start().await;
    trio.sentinels[0].kill();
    trio.sentinels[1].freeze();
    set(&link(&trio.url()), "a", "1").await.unwrap_err();
    eventually_set(&link(&trio.url()), "a", "1").await;
    trio.sentinels[1].thaw();
    let error = set(&link(&trio.url().replace("mymaster", "other")), "a", "1").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreachable { why, .. } if why.contains("no master named 'other'")),
        "{error}"
    );
}

//! Another server becomes the master.

use std::time::{Duration, Instant};

use redis::Value;
use testkit::{Redis, SentinelTrio, need_redis};

use super::super::{Durability, LinkHealth};
use super::{eventually, eventually_set, get, link, set};
use crate::call::ScriptCall as Call;
use crate::error::StoreError;

#[tokio::test]
async fn a_demoted_master_gets_no_writes_and_is_given_up() {
    need_redis!();
    let (server, other) = (Redis::start().await, Redis::start().await);
    let link = link(&server.url());
    set(&link, "a", "1").await.unwrap();
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    let mut pop = redis::cmd("BRPOPLPUSH");
    pop.arg("from").arg("to").arg(5);
    let start = Instant::now();
    let (popped, ()) = tokio::join!(own.query::<Value>(&pop), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.replicate_from(&other).await;
    });
    assert_eq!(popped, Err(StoreError::NotMaster));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let names_the_master = |error: &StoreError| {
        let master = format!("is a replica of 127.0.0.1:{} and takes no writes: name", other.port());
        *error == StoreError::NotMaster || error.to_string().contains(&master)
    };
    let refused = set(&link, "a", "2").await.unwrap_err();
    assert!(names_the_master(&refused), "{refused}");
    let refused = link.dedicated(Duration::from_secs(7)).await.map(drop).unwrap_err();
    assert!(names_the_master(&refused), "{refused}");
    server.promote().await;
    eventually_set(&link, "a", "3").await;
}

#[tokio::test]
async fn a_replica_is_never_used_as_the_master() {
    need_redis!();
    let (server, other) = (Redis::start().await, Redis::start().await);
    server.replicate_from(&other).await;
    let link = link(&server.url());
    let refused = link.query::<Value>(redis::cmd("GET").arg("a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "the Redis at 127.0.0.1:{} is a replica of 127.0.0.1:{master} and takes no writes: name 127.0.0.1:{master} \
             in KUBELEET_REDIS_URL, or the Sentinels (redis+sentinel://…/mymaster)",
            server.port(),
            master = other.port()
        )
    );
}

#[tokio::test]
async fn a_durable_write_to_a_demoted_master_fails_and_later_ones_find_the_master() {
    need_redis!();
    let (server, other) = (Redis::start().await, Redis::start().await);
    let link = link(&server.url());
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let (write, wait) = (Call::unnamed(script.key("n")), Duration::from_millis(100));
    assert!(link.durable_script(&write, wait).await.is_ok());
    server.replicate_from(&other).await;
    assert_eq!(link.durable_script(&write, wait).await, Err(StoreError::NotMaster));
    server.promote().await;
    eventually("a durable write works again", async || link.durable_script(&write, wait).await.ok()).await;
}

async fn sentinel_trio() -> SentinelTrio {
    SentinelTrio::start(1, &["--save", "", "--appendonly", "no"], [Duration::from_millis(500); 3]).await
}

#[tokio::test]
async fn the_link_follows_the_sentinels_to_the_new_master() {
    need_redis!();
    let trio = sentinel_trio().await;
    let link = link(&trio.sentinels.url());
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
    let new = format!("127.0.0.1:{}", trio.replicas[0].port());
    assert!(matches!(&*link.health().borrow(), LinkHealth::Connected { master, .. } if *master == new));

    // The dead master counts: it can come back and be promoted.
    let durability = link.durable_script(&durable, Duration::from_millis(100)).await.unwrap().1;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 0, known: 1 });
}

#[tokio::test]
async fn all_connections_leave_a_frozen_master_for_the_new_one() {
    need_redis!();
    let trio = sentinel_trio().await;
    let link = link(&trio.sentinels.url());
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

    // The old master considers itself the master for a moment.
    trio.master.thaw();
    for _ in 0..20 {
        eventually_set(&link, "later", "1").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let written: Option<String> = trio.replicas[0].cli(&["GET", "later"]).await;
    assert_eq!(written.as_deref(), Some("1"));
}

#[tokio::test]
async fn one_sentinel_is_enough_and_an_unknown_master_is_named_in_the_error() {
    need_redis!();
    let trio = sentinel_trio().await;
    trio.sentinels.processes[0].kill();
    trio.sentinels.processes[1].freeze();
    set(&link(&trio.sentinels.url()), "a", "1").await.unwrap_err();
    eventually_set(&link(&trio.sentinels.url()), "a", "1").await;
    trio.sentinels.processes[1].thaw();
    let error = set(&link(&trio.sentinels.url().replace("mymaster", "other")), "a", "1").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreachable { why, .. } if why.contains("no master named 'other'")),
        "{error}"
    );
}

//! Writes that wait for the replicas.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Value;
use testkit::{Redis, need_redis};

use super::super::{Durability, Link};
use super::{eventually, link};
use crate::call::ScriptCall as Call;
use crate::error::StoreError;

async fn write(link: &Link, wait: Duration) -> Durability {
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let (value, durability) = link.durable_script(&Call::unnamed(script.key("n")), wait).await.unwrap();
    assert!(matches!(value, Value::Int(_)));
    durability
}

#[tokio::test]
async fn without_replicas_a_write_is_on_a_single_machine() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    for _ in 0..3 {
        assert_eq!(write(&link, Duration::from_secs(1)).await, Durability::SingleMachine);
    }
}

#[tokio::test]
async fn all_known_replicas_must_confirm_a_write() {
    need_redis!();
    let master = Redis::start().await;
    let port = master.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let other = Redis::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let link = link(&master.url());
    eventually("both replicas are attached", async || {
        (write(&link, Duration::from_secs(2)).await == Durability::Confirmed { replicas: 2 }).then_some(())
    })
    .await;

    replica.freeze();
    let durability = write(&link, Duration::from_millis(300)).await;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });
    replica.thaw();
    assert_eq!(write(&link, Duration::from_secs(10)).await, Durability::Confirmed { replicas: 2 });

    // It could be promoted.
    other.kill();
    let durability = write(&link, Duration::from_millis(300)).await;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });

    // Replies no longer wait for it.
    eventually("a write returns at once", async || {
        let start = Instant::now();
        let durability = write(&link, Duration::from_millis(1000)).await;
        assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });
        (start.elapsed() < Duration::from_millis(500)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_writes_at_once_share_few_connections() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let link = link.clone();
        writes.spawn(async move { write(&link, Duration::from_secs(1)).await });
    }
    while let Some(durability) = writes.join_next().await {
        assert_eq!(durability.unwrap(), Durability::SingleMachine);
    }
    let clients: String = server.cli(&["CLIENT", "LIST"]).await;
    assert!(clients.lines().count() <= 18, "{clients}");
}

#[tokio::test]
async fn durable_writes_work_again_after_a_restart() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    write(&link, Duration::from_secs(1)).await;
    server.kill();
    server.restart().await;
    let script = redis::Script::new("return 1");
    eventually("a durable write works again", async || {
        link.durable_script(&Call::unnamed(script.prepare_invoke()), Duration::from_secs(1)).await.ok()
    })
    .await;
}

async fn open_connections(server: &Redis) -> BTreeSet<String> {
    let clients: String = server.cli(&["CLIENT", "LIST"]).await;
    clients.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

async fn first_write(link: &Link, server: &Redis) -> String {
    let _: Value = link.query(&redis::cmd("PING")).await.unwrap();
    let before = open_connections(server).await;
    write(link, Duration::from_secs(1)).await;
    // The question's own connection is closed or closing.
    let opened = eventually("only the new connection is left", async || {
        let opened: Vec<String> = open_connections(server).await.difference(&before).cloned().collect();
        (opened.len() == 2).then_some(opened)
    })
    .await;
    opened.into_iter().min_by_key(|id| id.trim_start_matches("id=").parse::<u64>().unwrap()).unwrap()
}

#[tokio::test]
async fn a_connection_is_used_for_many_writes() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let first = first_write(&link, &server).await;
    for _ in 0..10 {
        write(&link, Duration::from_secs(1)).await;
    }
    let open = eventually("only the link and this question are connected", async || {
        let open = open_connections(&server).await;
        (open.len() == 3).then_some(open)
    })
    .await;
    assert!(open.contains(&first), "{first} {open:?}");
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_an_error() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let first = first_write(&link, &server).await;
    let script = redis::Script::new("return redis.call('LPOP', KEYS[1])");
    let failed = link.durable_script(&Call::unnamed(script.key("n")), Duration::from_secs(1)).await;
    assert!(matches!(failed, Err(StoreError::WrongType { .. })), "{failed:?}");
    write(&link, Duration::from_secs(1)).await;
    eventually("the connection is closed", async || {
        (!open_connections(&server).await.contains(&first)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_a_dropped_write() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let first = first_write(&link, &server).await;
    server.freeze();
    let dropped =
        tokio::time::timeout(Duration::from_millis(100), write(&link, Duration::from_secs(1))).await;
    assert!(dropped.is_err());
    server.thaw();
    eventually("a durable write works again", async || {
        let script = redis::Script::new("return 'second'");
        let call = Call::unnamed(script.prepare_invoke());
        let (reply, _) = link.durable_script(&call, Duration::from_secs(1)).await.ok()?;
        assert_eq!(reply, Value::BulkString(b"second".to_vec()));
        Some(())
    })
    .await;
    eventually("the connection is closed", async || {
        (!open_connections(&server).await.contains(&first)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn failed_writes_free_their_connections() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    write(&link, Duration::from_secs(1)).await;
    let script = redis::Script::new("return redis.call('LPOP', KEYS[1])");
    // More failures than the pool has connections.
    for _ in 0..40 {
        let failed = link.durable_script(&Call::unnamed(script.key("n")), Duration::from_secs(1)).await;
        assert!(matches!(failed, Err(StoreError::WrongType { .. })), "{failed:?}");
    }
    write(&link, Duration::from_secs(1)).await;
}

//! Writes that wait for the replicas.

use std::time::{Duration, Instant};

use redis::Value;

use super::super::super::scripts::Call;
use super::super::{Durability, Link};
use super::server::{Server, available};
use super::{eventually, link};

async fn write(link: &Link, wait: Duration) -> Durability {
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let (value, durability) = link.durable_script(&Call::unnamed(script.key("n")), wait).await.unwrap();
    assert!(matches!(value, Value::Int(_)));
    durability
}

#[tokio::test]
async fn a_single_machine_is_called_one() {
    if !available() {
        return;
    }
    let server = Server::start(&[]);
    let link = link(&server.url());
    for _ in 0..3 {
        assert_eq!(write(&link, Duration::from_secs(1)).await, Durability::SingleMachine);
    }
}

#[tokio::test]
async fn all_known_replicas_have_to_say_yes() {
    if !available() {
        return;
    }
    let master = Server::start(&[]);
    let port = master.port.to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]);
    let mut other = Server::start(&["--replicaof", "127.0.0.1", &port]);
    let link = link(&master.url());
    eventually("both replicas are there", async || {
        (write(&link, Duration::from_secs(2)).await == Durability::Confirmed { replicas: 2 }).then_some(())
    })
    .await;

    replica.freeze();
    let durability = write(&link, Duration::from_millis(300)).await;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });
    replica.thaw();
    assert_eq!(write(&link, Duration::from_secs(10)).await, Durability::Confirmed { replicas: 2 });

    // One that is gone is still known for a while: it might be the one that is promoted.
    other.kill();
    let durability = write(&link, Duration::from_millis(300)).await;
    assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });

    // When it stays away, the answer does not wait for it any more.
    eventually("a write is answered at once", async || {
        let begun = Instant::now();
        let durability = write(&link, Duration::from_millis(1000)).await;
        assert_eq!(durability, Durability::Unconfirmed { confirmed: 1, known: 2 });
        (begun.elapsed() < Duration::from_millis(500)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_at_once_share_few_connections() {
    if !available() {
        return;
    }
    let server = Server::start(&[]);
    let link = link(&server.url());
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let link = link.clone();
        writes.spawn(async move { write(&link, Duration::from_secs(1)).await });
    }
    while let Some(durability) = writes.join_next().await {
        assert_eq!(durability.unwrap(), Durability::SingleMachine);
    }
    let clients: String = server.ask(redis::cmd("CLIENT").arg("LIST"));
    assert!(clients.lines().count() <= 18, "{clients}");
}

#[tokio::test]
async fn the_pool_survives_a_restart() {
    if !available() {
        return;
    }
    let mut server = Server::start(&[]);
    let link = link(&server.url());
    write(&link, Duration::from_secs(1)).await;
    server.kill();
    server.restart();
    let script = redis::Script::new("return 1");
    eventually("a durable write works again", async || {
        link.durable_script(&Call::unnamed(script.prepare_invoke()), Duration::from_secs(1)).await.ok()
    })
    .await;
}

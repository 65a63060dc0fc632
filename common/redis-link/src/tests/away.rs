//! A Redis that is down, stops, hangs, or comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::ports::free_port;
use testkit::{Redis, need_redis};
use tokio::net::TcpListener;

use super::super::LinkHealth;
use super::{eventually, eventually_set, get, link, options, set};
use crate::error::StoreError;

#[tokio::test]
async fn without_a_server_commands_fail_in_time_and_name_the_reason() {
    let link = link(&format!("redis://127.0.0.1:{}", free_port()));
    let start = Instant::now();
    let error = set(&link, "a", "b").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreachable { what, why } if what == "SET" && why.contains("refused")),
        "{error:?}"
    );
    assert!(
        start.elapsed() < options().connect_timeout + Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
    assert!(
        matches!(&*link.health().borrow(), LinkHealth::Disconnected { why, .. } if why.contains("refused"))
    );
}

#[tokio::test]
async fn without_a_server_attempts_to_connect_are_few() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let server = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            drop(connection);
        }
    });
    let link = link(&format!("redis://127.0.0.1:{port}"));
    let start = Instant::now();
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let link = link.clone();
        others.spawn(async move {
            while start.elapsed() < Duration::from_secs(3) {
                assert!(set(&link, "a", "b").await.is_err());
            }
        });
    }
    while others.join_next().await.transpose().unwrap().is_some() {}
    server.abort();
    // Waits of 50, 100, 200 … ms, each at least half as long: at most eight attempts.
    let attempts = attempts.load(Ordering::Relaxed);
    assert!((3..=9).contains(&attempts), "{attempts} connections in {:?}", start.elapsed());
}

#[tokio::test]
async fn a_server_that_was_killed_is_used_again_when_it_is_back() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut own = link.dedicated(Duration::from_secs(7)).await.unwrap();
    set(&link, "a", "1").await.unwrap();
    let before = super::generation(&link);
    server.kill();
    assert!(matches!(own.query::<()>(&redis::cmd("PING")).await, Err(StoreError::Unreachable { .. })));
    assert!(matches!(set(&link, "a", "2").await, Err(StoreError::Unreachable { .. })));
    assert!(matches!(&*link.health().borrow(), LinkHealth::Disconnected { .. }));
    server.restart().await;
    eventually_set(&link, "a", "3").await;
    assert_eq!(get(&link, "a").await, Some(b"3".to_vec()));
    assert!(super::generation(&link) > before);
    assert!(link.dedicated(Duration::from_secs(7)).await.is_ok());
}

#[tokio::test]
async fn a_lost_connection_is_noticed_without_commands() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    set(&link, "a", "1").await.unwrap();
    let mut health = link.health();
    server.kill();
    let away = health.wait_for(|health| matches!(health, LinkHealth::Disconnected { .. }));
    tokio::time::timeout(super::LIMIT, away).await.unwrap().unwrap();
    server.restart().await;
    let back = health.wait_for(|health| matches!(health, LinkHealth::Connected { .. }));
    tokio::time::timeout(super::LIMIT, back).await.unwrap().unwrap();
}

#[tokio::test]
async fn commands_to_a_server_that_hangs_fail_in_time() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    set(&link, "a", "1").await.unwrap();
    server.freeze();
    let limit = options().response_timeout + options().connect_timeout + Duration::from_millis(500);
    let mut errors = Vec::new();
    for value in ["2", "3"] {
        let start = Instant::now();
        errors.push(set(&link, "a", value).await.unwrap_err());
        assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    }
    assert!(matches!(errors[0], StoreError::Timeout { .. }), "{errors:?}");
    assert!(matches!(errors[1], StoreError::Unreachable { .. }), "{errors:?}");
    server.thaw();
    eventually_set(&link, "a", "4").await;
}

#[tokio::test]
async fn a_dropped_link_closes_all_connections() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    set(&link, "a", "1").await.unwrap();
    let mut subscription = link.subscribe("channel");
    subscription.next().await;
    let (own, clone) = (link.dedicated(Duration::from_secs(7)).await.unwrap(), link.clone());
    drop((link, subscription, own));
    set(&clone, "a", "2").await.unwrap();
    drop(clone);
    eventually("only the connection of this question is left", async || {
        let clients: String = server.cli(&["CLIENT", "LIST"]).await;
        (clients.lines().count() == 1).then_some(())
    })
    .await;
}

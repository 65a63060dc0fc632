//! Published messages.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use testkit::{Redis, need_redis};

use super::super::{Link, Subscription};
use super::{LIMIT, eventually, eventually_set, link};

async fn next(subscription: &mut Subscription) -> Bytes {
    tokio::time::timeout(LIMIT, subscription.next()).await.expect("a message in time")
}

async fn publish(link: &Link, channel: &str, message: &[u8]) -> u64 {
    link.query(redis::cmd("PUBLISH").arg(channel).arg(message)).await.unwrap()
}

async fn until_subscribed(link: &Link, channel: &str) {
    eventually("the channel has a subscriber", async || {
        (publish(link, channel, b"first").await > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn messages_reach_all_subscribers_over_one_connection() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut ones = [link.subscribe("one"), link.subscribe("one")];
    let mut two = link.subscribe("two");
    until_subscribed(&link, "one").await;
    until_subscribed(&link, "two").await;
    publish(&link, "one", b"\xff\x00").await;
    for one in &mut ones {
        assert_eq!(next(one).await, Bytes::new(), "an empty message comes first");
        while next(one).await != b"\xff\x00"[..] {}
    }
    publish(&link, "two", b"for two").await;
    while next(&mut two).await != b"for two"[..] {}

    let clients: String = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    assert_eq!(clients.lines().count(), 1, "{clients}");
    drop(two);
    eventually("the channel without subscribers is unsubscribed", async || {
        let channels: Vec<String> = server.cli(&["PUBSUB", "CHANNELS"]).await;
        (channels == ["one"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn subscribers_are_notified_after_a_reconnect_and_get_messages_again() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let mut subscription = link.subscribe("channel");
    until_subscribed(&link, "channel").await;
    publish(&link, "channel", b"last").await;
    while next(&mut subscription).await != b"last"[..] {}
    server.kill();
    server.restart().await;
    assert_eq!(next(&mut subscription).await, Bytes::new(), "something may have been missed");
    eventually_set(&link, "a", "1").await;
    publish(&link, "channel", b"again").await;
    while next(&mut subscription).await != b"again"[..] {}
}

#[tokio::test]
async fn a_slow_subscriber_neither_blocks_others_nor_grows() {
    need_redis!();
    let server = Redis::start().await;
    let link = link(&server.url());
    let (mut slow, mut quick) = (link.subscribe("channel"), link.subscribe("channel"));
    until_subscribed(&link, "channel").await;
    for number in 0..1000_u32 {
        publish(&link, "channel", number.to_string().as_bytes()).await;
    }
    while next(&mut quick).await != b"999"[..] {}
    let mut read = Vec::new();
    while read.last().is_none_or(|message: &Bytes| message != &b"999"[..]) {
        read.push(next(&mut slow).await);
    }
    assert!(read.len() <= 64, "{}", read.len());
    assert_eq!(read[0], Bytes::new(), "an empty message replaces what was dropped");
}

#[tokio::test]
async fn a_subscription_can_begin_before_the_server() {
    need_redis!();
    let server = Redis::start().await;
    server.kill();
    let link = link(&server.url());
    let mut subscription = link.subscribe("channel");
    assert_eq!(next(&mut subscription).await, Bytes::new());
    let more = tokio::time::timeout(Duration::from_millis(100), subscription.next()).await;
    assert!(more.is_err(), "no messages without a server");
    server.restart().await;
    assert_eq!(next(&mut subscription).await, Bytes::new(), "the subscription has taken effect");
    let heard: u64 = server.cli(&["PUBLISH", "channel", "hello"]).await;
    assert_eq!(heard, 1);
    assert_eq!(next(&mut subscription).await, b"hello"[..]);
    let _: Value = link.query(&redis::cmd("PING")).await.unwrap();
}

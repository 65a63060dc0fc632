//! The resolver on a real Redis.

use std::net::Ipv4Addr;

use gate::fixtures::local_pod;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use model::network::handover::LocalPod;
use routing::follow::Follower;
use testkit::eventually;
use testkit::redis::Redis;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

/// A pod of the app `shop`, and one without an app.
const IN_SHOP: [u8; 4] = [172, 18, 0, 2];
const OUTSIDE: [u8; 4] = [172, 18, 0, 3];

struct Host {
    redis: Redis,
    resolver: Arc<Resolver>,
    _follower: DropGuard,
}

impl Host {
    async fn new() -> Self {
        let host = Self::on(Redis::start().await);
        host.service("shop-web", "shop").await;
        host.service("other", "").await;
        host
    }

    fn on(redis: Redis) -> Self {
        let store = redis.store();
        let (follower, snapshot) = Follower::new(store.clone(), None);
        let gates = Arc::new(Gates::default());
        for (name, address) in [("shop-web", IN_SHOP), ("other", OUTSIDE)] {
            let service = ServiceName::new(name).ok();
            gates.set(LocalPod { service, address: Ipv4Addr::from(address).into(), ..local_pod(name) });
        }
        let forwarder = Forwarder::new("/dev/null".into());
        let resolver = Resolver::new(store, follower.interest(), snapshot, gates, forwarder);
        let shutdown = CancellationToken::new();
        tokio::spawn(follower.run(shutdown.clone()));
        Self { redis, resolver: Arc::new(resolver), _follower: shutdown.drop_guard() }
    }

    async fn service(&self, name: &str, app: &str) {
        let key = format!("service:{name}");
        let stored = format!(r#"{{"app":"{app}"}}"#);
        let fields = ["HSET", key.as_str(), "state", "active", "replicas", "2", "fields", &stored];
        let _added: i64 = self.redis.cli(&fields).await;
    }

    async fn ask(&self, from: [u8; 4], name: &str) -> Result<Ipv4Addr, ResponseCode> {
        let mut question = Message::new(7, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        let (question, client) = (question.to_vec().unwrap(), Ipv4Addr::from(from).into());
        let answer = self.resolver.answer(&question, client, QuestionTransport::Udp).await.unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        match answer.answers.first().map(|record| &record.data) {
            Some(RData::A(address)) => Ok(address.0),
            other => Err(if other.is_none() { answer.metadata.response_code } else { panic!("{answer:?}") }),
        }
    }
}

/// Its worker tells a moment later that it runs.
#[tokio::test]
async fn a_container_that_has_just_started_is_answered_as_a_pod_of_its_app() {
    const NEW: [u8; 4] = [172, 18, 0, 9];
    let host = Host::new().await;
    let shop_web = host.ask(IN_SHOP, "web.kubeleet.").await.unwrap();
    let asks = host.ask(NEW, "web.kubeleet.");
    let becomes_known = async {
        tokio::task::yield_now().await;
        let service = ServiceName::new("shop-web").ok();
        let pod = LocalPod { service, address: Ipv4Addr::from(NEW).into(), ..local_pod("new") };
        host.resolver.gates.set(pod);
    };
    let (answer, ()) = tokio::join!(asks, becomes_known);
    assert_eq!(answer, Ok(shop_web));
}

#[tokio::test]
async fn a_name_leads_to_an_address_and_back_and_an_apps_short_name_comes_first() {
    let host = Host::new().await;
    let other = host.ask(OUTSIDE, "other.kubeleet.").await.unwrap();
    assert_eq!(host.ask(IN_SHOP, "other.").await, Ok(other));
    let shop_web = host.ask(OUTSIDE, "shop-web.kubeleet.").await.unwrap();
    assert_eq!(host.ask(IN_SHOP, "web.kubeleet.").await, Ok(shop_web));
    assert_eq!(host.ask(OUTSIDE, "shop_web.").await, Ok(shop_web), "as a Compose file may call it");
    assert_eq!(host.ask(OUTSIDE, "web.kubeleet.").await, Err(ResponseCode::NXDomain));
    let slot = host.ask(IN_SHOP, "1.web.kubeleet.").await.unwrap();
    assert!(slot != shop_web && slot != other);
    let holder = host.resolver.holder(PoolAddress::from_ip(slot).unwrap(), IN_SHOP.into()).await.unwrap();
    assert_eq!(holder.to_string(), "1.shop-web");
    assert_eq!(host.ask(IN_SHOP, "2.web.kubeleet.").await, Err(ResponseCode::NXDomain), "no such slot");
}

#[tokio::test]
async fn a_service_that_is_created_after_it_was_asked_for_is_found() {
    let host = Host::new().await;
    assert_eq!(host.ask(OUTSIDE, "late.kubeleet.").await, Err(ResponseCode::NXDomain));
    host.service("late", "").await;
    eventually::eventually_within(Duration::from_secs(10), "the name is found", || async {
        let answer = host.ask(OUTSIDE, "late.kubeleet.").await;
        eventually::check(answer.is_ok(), || format!("{answer:?}"))
    })
    .await;
}

#[tokio::test]
async fn without_redis_what_is_known_is_answered_and_what_is_not_fails_and_does_not_count_as_missing() {
    let host = Host::new().await;
    let other = host.ask(OUTSIDE, "other.kubeleet.").await.unwrap();
    let missing = host.ask(IN_SHOP, "other.kubeleet.").await;
    assert_eq!(missing, Ok(other));
    host.redis.kill();
    // Until the negative answer for `shop-other` expires.
    tokio::time::sleep(MISSING_KEPT).await;
    for from in [OUTSIDE, IN_SHOP] {
        assert_eq!(host.ask(from, "other.kubeleet.").await, Ok(other));
    }
    assert_eq!(host.ask(OUTSIDE, "unknown.kubeleet.").await, Err(ResponseCode::ServFail));
    let next = Host::on(host.redis);
    next.resolver.insert_saved(host.resolver.known_addresses());
    assert_eq!(next.ask(OUTSIDE, "other.kubeleet.").await, Ok(other));
    let holder = next.resolver.holder(PoolAddress::from_ip(other).unwrap(), IN_SHOP.into()).await.unwrap();
    assert_eq!(holder.to_string(), "other");
}

#[tokio::test]
async fn a_pod_that_asks_redis_too_much_is_refused_and_another_one_is_not() {
    let host = Host::new().await;
    let loud: IpAddr = OUTSIDE.into();
    let asks = &host.resolver.shares.asks;
    let taken: Vec<_> = std::iter::from_fn(|| asks.take_fairly(loud, usize::MAX).ok()).collect();
    assert_eq!(host.ask(OUTSIDE, "other.kubeleet.").await, Err(ResponseCode::ServFail));
    let begun = Instant::now();
    host.ask(IN_SHOP, "other.kubeleet.").await.expect("nothing is noted of the name that was refused");
    host.ask(IN_SHOP, "1.web.kubeleet.").await.unwrap();
    assert!(begun.elapsed() < SHARE_WITHIN, "{:?}", begun.elapsed());
    drop(taken);
    host.ask(OUTSIDE, "1.other.kubeleet.").await.unwrap();
}

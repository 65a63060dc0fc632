//! Certificates that proxies order: effects of two proxies, a failover, and other programs.

use std::time::Duration;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::DEAD_AFTER;
use model::network::certificate::OrderFailure;
use store::{Challenge, StoreError};

use crate::changing_nothing;
use crate::operations::certificate;

const HOST: &str = "a.example";
const MINUTE: Duration = Duration::from_secs(60);

async fn status(fixture: &Fixture) -> model::network::certificate::CertificateStatus {
    let (_, mut statuses) = fixture.store.certificate_statuses(&[HOST.to_owned()]).await.unwrap();
    statuses.remove(0).unwrap()
}

async fn begin(fixture: &Fixture, attempt: &str) -> Option<u32> {
    assert!(fixture.store.lease("acme", &"w1", DEAD_AFTER).await.unwrap());
    fixture.store.begin_certificate(HOST, "acme", "w1", attempt).await.unwrap()
}

fn challenge(token: &str) -> Challenge {
    Challenge { token: token.to_owned(), authorization: format!("{token}.key") }
}

#[tokio::test]
async fn only_the_holder_of_the_lease_begins_an_order() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    assert_eq!(store.begin_certificate(HOST, "acme", "w1", "1").await.unwrap(), None, "no process holds it");
    assert_eq!(begin(&fixture, "1").await, Some(1));
    let other = store.begin_certificate(HOST, "acme", "w2", "2");
    assert_eq!(changing_nothing(&fixture, other).await.unwrap(), None);
    assert_eq!(begin(&fixture, "2").await, Some(2), "the first one was interrupted");
    assert_eq!(status(&fixture).await.attempts, 2);
}

#[tokio::test]
async fn what_an_order_brings_about_after_another_one_has_begun_changes_nothing_but_for_a_certificate() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    begin(&fixture, "1").await;
    assert!(store.put_challenge(HOST, "1", &challenge("one")).await.unwrap());
    begin(&fixture, "2").await;
    assert_eq!(store.challenges(&[HOST.to_owned()]).await.unwrap(), [None], "that of the first is gone");
    assert!(!changing_nothing(&fixture, store.put_challenge(HOST, "1", &challenge("one"))).await.unwrap());
    assert!(!changing_nothing(&fixture, store.fail_certificate(HOST, "1", "why", MINUTE)).await.unwrap());
    assert!(store.put_challenge(HOST, "2", &challenge("two")).await.unwrap());
    assert_eq!(store.challenges(&[HOST.to_owned()]).await.unwrap(), [Some(challenge("two"))]);
    store.put_certificate(&certificate(HOST, 4_000_000_000)).await.unwrap();
    let stored = status(&fixture).await;
    assert_eq!((stored.attempts, stored.begun_at, stored.failure), (0, None, None));
    assert_eq!(stored.certificate.unwrap().not_after, 4_000_000_000);
}

#[tokio::test]
async fn a_failure_is_kept_with_its_wait_until_an_order_succeeds() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    begin(&fixture, "1").await;
    assert!(store.fail_certificate(HOST, "1", "no address", MINUTE).await.unwrap());
    let OrderFailure { error, wait, at } = status(&fixture).await.failure.unwrap();
    assert_eq!((error.as_str(), wait), ("no address", MINUTE));
    let (now, _) = store.certificate_statuses(&[]).await.unwrap();
    assert!(at > 0 && now == 0, "no host, no read");
    assert_eq!(begin(&fixture, "2").await, Some(2));
    assert!(status(&fixture).await.failure.is_some(), "it is told until it is better");
    store.put_certificate(&certificate(HOST, 4_000_000_000)).await.unwrap();
    assert_eq!(status(&fixture).await.failure, None);
    let lasts: i64 = fixture.redis.cli(&["PTTL", "certificate:a.example"]).await;
    assert!(lasts > 365 * 86_400 * 1000, "until its end, and not only {lasts} ms");
}

#[tokio::test]
async fn a_certificate_gives_way_to_one_that_lasts_longer_or_is_of_another_directory() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let end = async || store.certificate(HOST).await.unwrap().unwrap().not_after;
    store.put_certificate(&certificate(HOST, 4_000_000_000)).await.unwrap();
    changing_nothing(&fixture, store.put_certificate(&certificate(HOST, 3_900_000_000))).await.unwrap();
    assert_eq!(end().await, 4_000_000_000);
    store.put_certificate(&certificate(HOST, 4_100_000_000)).await.unwrap();
    assert_eq!(end().await, 4_100_000_000);
    let mut other = certificate(HOST, 3_900_000_000);
    other.directory = "https://other.example/directory".to_owned();
    store.put_certificate(&other).await.unwrap();
    assert_eq!(end().await, 3_900_000_000);
}

#[tokio::test]
async fn a_broken_record_is_that_hosts_problem_only() {
    let fixture = Fixture::new().await;
    let hosts = ["a.example", "b.example", "c.example"].map(str::to_owned);
    fixture.store.put_certificate(&certificate("c.example", 4_000_000_000)).await.unwrap();
    let () = fixture.redis.cli(&["SET", "certificate:a.example", "another program's"]).await;
    let () = fixture.redis.cli(&["HSET", "certificate:b.example", "id", "1", "not_after", "soon"]).await;
    let (now, statuses) = fixture.store.certificate_statuses(&hosts).await.unwrap();
    assert!(now > 0);
    assert!(matches!(statuses[0], Err(StoreError::WrongType { .. })), "{statuses:?}");
    assert!(matches!(statuses[1], Err(StoreError::Corrupt { .. })), "{statuses:?}");
    assert!(statuses[2].as_ref().unwrap().certificate.is_some());
    assert_eq!(fixture.store.challenges(&hosts).await.unwrap(), [None, None, None]);
    assert!(fixture.store.certificate("a.example").await.unwrap_err().is_broken_key());
}

#[tokio::test]
async fn of_two_accounts_the_first_one_stays_until_it_is_forgotten() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for sealed in ["first", "second"] {
        store.put_acme_account("https://ca.example", sealed).await.unwrap();
    }
    assert_eq!(store.acme_account("https://ca.example").await.unwrap().as_deref(), Some("first"));
    store.forget_acme_account("https://ca.example").await.unwrap();
    assert_eq!(store.acme_account("https://ca.example").await.unwrap(), None);
}

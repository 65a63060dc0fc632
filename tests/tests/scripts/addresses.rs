//! `addresses`: a name keeps its address, and no address has two names.

use std::collections::{BTreeMap, BTreeSet};

use kubeleet_tests::Fixture;
use model::ids::ServiceName;
use model::network::address::{AddressName, PoolAddress};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde_json::json;
use store::{GivenAddress, StoreError};

use crate::changing_nothing;

fn name(text: &str) -> AddressName {
    text.parse().unwrap()
}

async fn ask(fixture: &Fixture, text: &str) -> GivenAddress {
    fixture.store.address(&name(text)).await.unwrap()
}

async fn address(fixture: &Fixture, text: &str) -> PoolAddress {
    match ask(fixture, text).await {
        GivenAddress::Confirmed(address) => address,
        other => panic!("{text}: {other:?}"),
    }
}

async fn forget(fixture: &Fixture, service: &str) {
    let service = ServiceName::new(service).unwrap();
    fixture.store.delete_service(&service).await.unwrap();
    let service = fixture.store.service(&service).await.unwrap().unwrap();
    for (replica, pod) in fixture.store.slots(&service.name).await.unwrap() {
        let _: u64 =
            fixture.redis.cli(&["HDEL", &format!("slots:{}", service.name), &replica.to_string()]).await;
        let _: u64 = fixture.redis.cli(&["DEL", &format!("pod:{pod}")]).await;
    }
    assert!(fixture.store.forget_service(&service).await.unwrap());
    free(fixture).await;
}

async fn free(fixture: &Fixture) -> usize {
    let (mut sum, mut cursor) = (0, Some(0));
    while let Some(page) = cursor {
        let freed;
        (freed, cursor) = fixture.store.free_addresses(page).await.unwrap();
        sum += freed;
    }
    sum
}

#[tokio::test]
async fn a_service_and_its_slots_each_keep_an_address_of_their_own() {
    let fixture = Fixture::new().await;
    fixture.service("web", 2).await;
    fixture.service("api", 1).await;
    let mut given = BTreeMap::new();
    for text in ["web", "0.web", "1.web", "api", "0.api"] {
        let first = address(&fixture, text).await;
        assert_eq!(changing_nothing(&fixture, address(&fixture, text)).await, first, "{text}");
        assert_eq!(given.insert(first, name(text)), None, "{text}");
    }
    let mut listed = fixture.store.addresses().await.unwrap();
    listed.sort_by_key(|(_, address)| *address);
    assert_eq!(listed, given.into_iter().map(|(address, name)| (name, address)).collect::<Vec<_>>());
    assert_eq!(fixture.store.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_no_service_or_no_wanted_slot_gets_no_address() {
    let fixture = Fixture::new().await;
    fixture.service("web", 2).await;
    for text in ["other", "0.other", "2.web", "4294967295.web"] {
        assert_eq!(changing_nothing(&fixture, ask(&fixture, text)).await, GivenAddress::Missing, "{text}");
    }
}

#[tokio::test]
async fn an_address_is_not_listed_and_not_told_before_it_is_confirmed() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let number = address(&fixture, "web").await;
    // As after the death of a process that waited for the replicas.
    let text = number.number().to_string();
    let _: u64 = fixture.redis.cli(&["HSET", "addresses", "web", &format!("{text} new")]).await;
    assert_eq!(fixture.store.addresses().await.unwrap(), []);
    assert_eq!(address(&fixture, "web").await, number, "the same one, and confirmed by now");
    assert_eq!(fixture.store.addresses().await.unwrap(), [(name("web"), number)]);
}

#[tokio::test]
async fn the_addresses_of_a_forgotten_service_are_free_for_others_after_an_hour() {
    let fixture = Fixture::new().await;
    fixture.service("web", 2).await;
    let (of_service, of_slot) = (address(&fixture, "web").await, address(&fixture, "1.web").await);
    forget(&fixture, "web").await;
    let keyspace = fixture.keyspace().await;
    assert_eq!(keyspace.fields("addresses"), [], "nothing is left");
    fixture.service("web", 2).await;
    let next = address(&fixture, "web").await;
    assert_ne!(next, of_service, "it was freed a moment ago");
    forget(&fixture, "web").await;
    // Also in the future, as a former master with another clock wrote it.
    let times: (String, String) = fixture.redis.cli(&["TIME"]).await;
    let long_ago = (times.0.parse::<u64>().unwrap() - 3601) * 1000;
    let [service, slot] = [of_service, of_slot].map(|address| address.number().to_string());
    let () = fixture
        .redis
        .cli(&["ZADD", "addresses:free", &long_ago.to_string(), &service, "99999999999999", &slot])
        .await;
    fixture.service("web", 2).await;
    assert_eq!(address(&fixture, "web").await, of_service, "where the search begins follows from the name");
    assert_ne!(address(&fixture, "1.web").await, of_slot);
    free(&fixture).await;
    let written: f64 = fixture.redis.cli(&["ZSCORE", "addresses:free", &slot]).await;
    assert!(written < 99_999_999_999_999.0, "the future counts as now");
}

#[tokio::test]
async fn a_redis_that_lost_everything_gives_the_same_addresses() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let before = [address(&fixture, "web").await, address(&fixture, "0.web").await];
    let () = fixture.redis.cli(&["FLUSHALL"]).await;
    fixture.service("web", 1).await;
    assert_eq!([address(&fixture, "web").await, address(&fixture, "0.web").await], before);
}

#[tokio::test]
async fn the_addresses_of_slots_that_are_gone_with_a_scale_down_are_freed_and_no_others() {
    let fixture = Fixture::new().await;
    let service = fixture.service("web", 3).await;
    fixture.service("api", 1).await;
    let mut kept = Vec::new();
    for text in ["web", "0.web", "api", "0.api"] {
        kept.push((name(text), address(&fixture, text).await));
    }
    let gone = address(&fixture, "2.web").await;
    let _: u64 = fixture.redis.cli(&["HSET", "addresses", "#777", "web"]).await;
    assert_eq!(free(&fixture).await, 0);
    assert_eq!(fixture.keyspace().await.field("addresses", "#777"), "");
    fixture.store.scale_service(&service.name, 2).await.unwrap();
    assert_eq!(free(&fixture).await, 1);
    let mut listed = fixture.store.addresses().await.unwrap();
    kept.sort();
    listed.sort();
    assert_eq!(listed, kept);
    let since: f64 = fixture.redis.cli(&["ZSCORE", "addresses:free", &gone.number().to_string()]).await;
    assert!(since > 0.0, "no other name gets it within an hour");
    let () = fixture.redis.cli(&["SET", "service:api", "another program's"]).await;
    fixture.store.scale_service(&service.name, 0).await.unwrap();
    assert_eq!(free(&fixture).await, 1);
}

#[tokio::test]
async fn a_service_has_a_share_of_the_addresses_and_the_completions_of_a_job_have_none() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let () = fixture.redis.cli(&["HSET", "service:web", "replicas", "100000"]).await;
    let share = PoolAddress::SLOTS_OF_SERVICE;
    address(&fixture, &format!("{}.web", share - 1)).await;
    assert_eq!(ask(&fixture, &format!("{share}.web")).await, GivenAddress::Missing);
    let job = json!({"kind": "job", "name": "sums", "image": "i", "job": {"completions": 2}});
    fixture.service_of(job).await;
    address(&fixture, "sums").await;
    assert_eq!(ask(&fixture, "0.sums").await, GivenAddress::Missing);
}

async fn fill_but(fixture: &Fixture, left: u32) {
    let script = "for n = ARGV[1], ARGV[2] do redis.call('HSET', 'addresses', '#' .. n, 'x', 'y' .. n, n) end return 1";
    let last = PoolAddress::FIRST + PoolAddress::COUNT - 1 - left;
    let _: u64 =
        fixture.redis.cli(&["EVAL", script, "0", &PoolAddress::FIRST.to_string(), &last.to_string()]).await;
}

#[tokio::test]
async fn a_pool_that_is_used_up_costs_redis_little_and_the_last_free_addresses_are_found() {
    let fixture = Fixture::new().await;
    fixture.service("web", 200).await;
    fill_but(&fixture, 0).await;
    let () = fixture.redis.cli(&["CONFIG", "RESETSTAT"]).await;
    for slot in 0..200 {
        assert_eq!(ask(&fixture, &format!("{slot}.web")).await, GivenAddress::Full);
    }
    let stats: String = fixture.redis.cli(&["INFO", "commandstats"]).await;
    let scripts = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let each = scripts.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap();
    assert!(each.parse::<f64>().unwrap() < 2000.0, "microseconds for a call: {scripts}");
    let () = fixture.redis.cli(&["DEL", "addresses"]).await;
    fill_but(&fixture, 8_000).await;
    let mut random = 0;
    while !matches!(ask(&fixture, "web").await, GivenAddress::Confirmed(_)) {
        random += 1;
        assert!(random < 500, "one call in about sixteen finds one");
    }
}

const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const NAMES: [&str; 8] = ["a", "b", "c", "d", "0.a", "0.b", "1.c", "1.d"];

#[tokio::test]
async fn no_address_has_two_names_whatever_is_written_by_hand() {
    assert_eq!(values_written_by_hand(&Fixture::new().await).await, Vec::<String>::new());
}

/// Returns addresses that are told for two names, or not listed.
pub(crate) async fn values_written_by_hand(fixture: &Fixture) -> Vec<String> {
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let () = fixture.redis.cli(&["FLUSHALL"]).await;
        for service in SERVICES {
            fixture.service(service, 2).await;
        }
        for step in 0..150 {
            if random.random_range(0..3) == 0 {
                spoil(fixture, &mut random).await;
            }
            let wrong = ask_for_some(fixture, &mut random).await;
            if !wrong.is_empty() {
                return wrong.into_iter().map(|line| format!("seed {seed}, step {step}: {line}")).collect();
            }
            if random.random_range(0..10) == 0 {
                let service = SERVICES.choose(&mut random).unwrap();
                forget(fixture, service).await;
                fixture.service(service, 2).await;
            }
        }
    }
    Vec::new()
}

async fn ask_for_some(fixture: &Fixture, random: &mut StdRng) -> Vec<String> {
    let (mut told, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut names = NAMES;
    names.shuffle(random);
    for text in &names[..random.random_range(2..NAMES.len())] {
        let address = address(fixture, text).await;
        if let Some(other) = told.insert(address, text) {
            wrong.push(format!("{address:?} has two names, {other} and {text}"));
        }
        let listed = fixture.store.addresses().await.unwrap();
        let numbers: BTreeSet<PoolAddress> = listed.iter().map(|(_, address)| *address).collect();
        if numbers.len() < listed.len() || !listed.contains(&(name(text), address)) {
            wrong.push(format!("{address:?} of {text} is told, and these are listed: {listed:?}"));
        }
    }
    wrong
}

async fn spoil(fixture: &Fixture, random: &mut StdRng) {
    let [one, other] = [0; 2].map(|_| *NAMES.choose(random).unwrap());
    let number: Option<String> = fixture.redis.cli(&["HGET", "addresses", other]).await;
    let number = number.unwrap_or_else(|| "5".to_owned());
    let digits = number.trim_end_matches(" new").to_owned();
    let nonsense = ["", "nan", "-1", "1", "999999999999", "0007", "7 7", "x"];
    let words: Vec<String> = match random.random_range(0..5) {
        0 => vec!["HSET".into(), "addresses".into(), one.into(), digits],
        1 => vec!["HSET".into(), "addresses".into(), one.into(), (*nonsense.choose(random).unwrap()).into()],
        2 => vec!["HSET".into(), "addresses".into(), format!("#{digits}"), one.into()],
        3 => vec!["HDEL".into(), "addresses".into(), format!("#{digits}")],
        _ => vec!["ZADD".into(), "addresses:free".into(), "inf".into(), digits],
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _: u64 = fixture.redis.cli(&words).await;
}

#[tokio::test]
async fn a_pool_that_another_program_overwrote_is_moved_away_and_filled_again() {
    let fixture = Fixture::new().await;
    fixture.service("web", 1).await;
    let before = address(&fixture, "web").await;
    let () = fixture.redis.cli(&["SET", "addresses", "mine"]).await;
    let refused = changing_nothing(&fixture, fixture.store.address(&name("web"))).await;
    assert!(matches!(refused, Err(StoreError::WrongType { .. })), "{refused:?}");
    for finding in fixture.store.check().await.unwrap() {
        fixture.store.repair(&finding).await.unwrap();
    }
    assert_eq!(address(&fixture, "web").await, before);
}

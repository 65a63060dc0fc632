//! `relations`: which services name others in their rules, and what `assign` makes of it.

use std::collections::BTreeMap;

use kubeleet_tests::Fixture;
use kubeleet_tests::fixture::DEAD_AFTER;
use model::ids::ServiceName;
use model::pod::payload::Payload;
use model::spec::ServiceInput;
use serde_json::{Value, json};
use store::{AssignOutcome, Assignment, CountedAssignment, PlacedService, PutMode, PutOutcome, WaitingPods};

use crate::changing_nothing;

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

async fn put(fixture: &Fixture, service: &str, placement: Value) -> PutOutcome {
    let input = json!({"name": service, "image": "nginx", "replicas": 0, "placement": placement});
    let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
    fixture.store.put_service(&desired, PutMode::Upsert, None).await.unwrap().0
}

async fn relations(fixture: &Fixture) -> String {
    let mut relations = fixture.keyspace().await.fields("relations");
    relations.sort();
    relations.into_iter().map(|(of, owners)| format!("{of}: {owners}")).collect::<Vec<_>>().join("; ")
}

async fn forget(fixture: &Fixture, service: &str) {
    fixture.store.delete_service(&name(service)).await.unwrap();
    let service = fixture.store.service(&name(service)).await.unwrap().unwrap();
    assert!(fixture.store.forget_service(&service).await.unwrap());
}

async fn placed(fixture: &Fixture, service: &str) -> (BTreeMap<String, Vec<String>>, PlacedService) {
    let services = [(name(service), WaitingPods::from(1))].into();
    let mut placed = fixture.store.placed_services(&services).await.unwrap();
    let own = placed[&name(service)].clone();
    let nodes =
        |of: PlacedService| of.siblings.into_iter().flatten().map(|one| one.node.to_string()).collect();
    (placed.drain().map(|(name, of)| (name.to_string(), nodes(of))).collect(), own)
}

async fn take(fixture: &Fixture, count: usize) -> Vec<Payload> {
    let taken = fixture.store.take(&fixture.scheduler, count).await.unwrap();
    taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect()
}

fn counted(own: &str, next: &str, related: &[(&str, &str)]) -> CountedAssignment {
    CountedAssignment {
        seen_mark: own.to_owned(),
        next_mark: next.to_owned(),
        opens_domains: false,
        related: related.iter().map(|(of, mark)| (name(of), (*mark).to_owned())).collect(),
    }
}

/// Both look before either assigns, and choose the same node. Returns what is wrong then.
pub(crate) async fn two_schedulers_place_a_pair(fixture: &Fixture) -> Vec<String> {
    let session = fixture.node("w1").await;
    fixture.service("web", 1).await;
    let of_web = take(fixture, 1).await.remove(0);
    fixture.service("db", 1).await;
    let of_db = fixture.store.take(&fixture.scheduler, 2).await.unwrap().into_iter();
    let of_db = of_db.map(|raw| Payload::parse(raw).unwrap()).find(|payload| payload.name.as_str() == "db");
    put(fixture, "db", json!({"anti_affinity": [{"service": "web"}]})).await;
    let seen = [placed(fixture, "web").await.1.mark, placed(fixture, "db").await.1.mark];
    let mut both = Vec::new();
    for (payload, own, other, of) in
        [(of_web, &seen[0], &seen[1], "db"), (of_db.unwrap(), &seen[1], &seen[0], "web")]
    {
        let one = fixture.assignment(&session, payload).await;
        let counted = Some(counted(own, "next", &[(of, other)]));
        let one = Assignment { counted, ..one };
        both.extend(fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[one]).await.unwrap());
    }
    let are_both = both == [AssignOutcome::Assigned; 2];
    are_both.then(|| "web and db are both on w1".to_owned()).into_iter().collect()
}

#[tokio::test]
async fn of_two_schedulers_only_one_places_its_pod_of_a_pair() {
    let fixture = Fixture::new().await;
    assert_eq!(two_schedulers_place_a_pair(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn relations_follow_the_rules_of_services_and_replace_no_pod() {
    let fixture = Fixture::new().await;
    let rules = json!({"anti_affinity": [{"service": "web"}], "affinity": [{"service": "cache"}]});
    let created = put(&fixture, "db", rules.clone()).await;
    assert!(matches!(created, PutOutcome::Created(_)), "{created:?}");
    assert_eq!(relations(&fixture).await, "cache: db; web: db");
    let same = changing_nothing(&fixture, put(&fixture, "db", rules)).await;
    assert_eq!(same, PutOutcome::Unchanged { generation: 1 });
    put(&fixture, "api", json!({"anti_affinity": [{"service": "web", "by": "zone"}]})).await;
    assert_eq!(relations(&fixture).await, "cache: db; web: db api");
    let fewer = json!({"anti_affinity": [{"service": "web", "hard": false}]});
    assert_eq!(put(&fixture, "db", fewer).await, PutOutcome::Scaled { generation: 1 });
    assert_eq!(relations(&fixture).await, "web: api db");
    forget(&fixture, "db").await;
    assert_eq!(relations(&fixture).await, "web: api");
    assert_eq!(put(&fixture, "api", json!({})).await, PutOutcome::Scaled { generation: 1 });
    assert_eq!(relations(&fixture).await, "");
}

#[tokio::test]
async fn the_check_rebuilds_the_relations_and_a_recovered_service_has_its_own_again() {
    let fixture = Fixture::new().await;
    put(&fixture, "db", json!({"anti_affinity": [{"service": "web"}, {"service": "batch"}]})).await;
    let before = relations(&fixture).await;
    assert_eq!(fixture.store.check().await.unwrap(), []);
    let _: u64 = fixture.redis.cli(&["HDEL", "relations", "web"]).await;
    let _: u64 = fixture.redis.cli(&["HSET", "relations", "batch", "db gone", "old", "db"]).await;
    let found = fixture.store.check().await.unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    for finding in &found {
        assert!(fixture.store.repair(finding).await.unwrap(), "{finding:?}");
        assert!(!fixture.store.repair(finding).await.unwrap(), "{finding:?}, again");
    }
    assert_eq!(relations(&fixture).await, before);
    let saved = fixture.store.saved_service(&name("db")).await.unwrap().unwrap();
    forget(&fixture, "db").await;
    assert!(fixture.store.recover_record(&saved).await.unwrap());
    assert_eq!(relations(&fixture).await, before);
}

#[tokio::test]
async fn the_services_of_a_relation_are_read_with_their_pods_and_others_are_not() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    for service in ["web", "db", "other"] {
        fixture.service(service, 1).await;
    }
    for payload in take(&fixture, 3).await {
        let one = fixture.assignment(&session, payload).await;
        fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &[one]).await.unwrap();
    }
    let (none, own) = placed(&fixture, "web").await;
    assert_eq!((none.len(), own.siblings), (1, None), "one pod and no relation");
    put(&fixture, "db", json!({"anti_affinity": [{"service": "web"}, {"service": "missing"}]})).await;
    let (of_web, own) = placed(&fixture, "web").await;
    assert_eq!(own.named_by, [name("db")]);
    let on_w1 = |name: &str| (name.to_owned(), vec!["w1".to_owned()]);
    assert_eq!(of_web, BTreeMap::from([on_w1("web"), on_w1("db")]));
    let (of_db, _) = placed(&fixture, "db").await;
    let missing = ("missing".to_owned(), Vec::new());
    assert_eq!(of_db, BTreeMap::from([on_w1("web"), on_w1("db"), missing]));
    let _: String = fixture.redis.cli(&["SET", "relations", "nonsense"]).await;
    assert_eq!(placed(&fixture, "web").await.0.len(), 1, "until the key is set aside and made again");
}

#[tokio::test]
async fn no_pod_is_assigned_if_one_of_a_related_service_was_since_they_were_counted() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    fixture.service("web", 3).await;
    fixture.service("db", 3).await;
    let payloads = take(&fixture, 6).await;
    let (web, db): (Vec<_>, Vec<_>) = payloads.iter().partition(|payload| payload.name.as_str() == "web");
    let assign = async |pods: Vec<(&Payload, CountedAssignment)>| {
        let mut assignments = Vec::new();
        for (payload, counted) in pods {
            let one = fixture.assignment(&session, payload.clone()).await;
            assignments.push(Assignment { counted: Some(counted), ..one });
        }
        fixture.store.assign(&fixture.scheduler, DEAD_AFTER, &assignments).await.unwrap()
    };
    let mark = async |of: &str| placed(&fixture, of).await.1.mark;
    use AssignOutcome::{Assigned, Refused};
    // Two schedulers looked at the same moment.
    assert_eq!(assign(vec![(web[0], counted("", "w1", &[("db", "")]))]).await, [Assigned]);
    assert_eq!(assign(vec![(db[0], counted("", "d1", &[("web", "")]))]).await, [Refused]);
    assert_eq!((mark("web").await, mark("db").await), ("w1".to_owned(), String::new()));
    assert_eq!(assign(vec![(db[0], counted("", "d1", &[("web", "w1")]))]).await, [Assigned]);
    assert_eq!((mark("web").await, mark("db").await), ("w1".to_owned(), "d1".to_owned()));
    // Both in one script: each of its decisions knows those before it, as long as they hold.
    let both =
        vec![(web[1], counted("w1", "w2", &[("db", "d1")])), (db[1], counted("d1", "d2", &[("web", "w1")]))];
    assert_eq!(assign(both).await, [Assigned; 2]);
    let twice =
        vec![(web[1], counted("w2", "w3", &[("db", "d2")])), (db[2], counted("d2", "d3", &[("web", "w2")]))];
    let outcomes = assign(twice).await;
    assert_eq!(
        outcomes,
        [AssignOutcome::Stale, Refused],
        "the first is there already: what was decided is not"
    );
}

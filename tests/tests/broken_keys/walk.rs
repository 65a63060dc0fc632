//! The walk: every kind of key with every wrong value.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeleet_tests::Keyspace;
use kubeleet_tests::in_process::InProcessCluster;
use kubeleet_tests::keyspace::KeyEntry;
use model::ids::{NodeName, PodId};
use model::node::labels::OwnLabels;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::rounds::{Named, TOO_LARGE, Walk, name_of};
use crate::wrong_values::{WrongValue, type_of, wrong_values};

const NODES: u32 = 24;
const BROKEN_NODES: usize = 16;
const SERVICES: usize = 60;
const PODS: usize = 200;

/// True takes minutes.
fn is_complete() -> bool {
    std::env::var_os("KUBELEET_WALK_ALL").is_some()
}

fn services() -> Vec<Value> {
    let one = |name: String| json!({"name": name, "image": "x", "replicas": 1});
    let mut all: Vec<Value> = (0..SERVICES).map(|number| one(format!("one-{number}"))).collect();
    all.push(json!({"name": "many", "image": "x", "replicas": PODS}));
    all.push(json!({"name": "strict", "image": "x", "replicas": 10, "on_disconnect": "stop"}));
    all.push(json!({"name": "bystander", "image": "x", "replicas": 10}));
    all.push(json!({"name": "huge", "image": TOO_LARGE, "replicas": 1, "memory": "900GiB"}));
    all
}

async fn cluster() -> Walk {
    let cluster = InProcessCluster::start(NODES).await;
    let services = services();
    for service in &services {
        cluster.http.post("/service?allow_partial=true", service).await;
    }
    for number in 0..8 {
        let pushed =
            format!(r#"{{"name":"pushed","uuid":"pushed-{number}","image":"x","replica":{number}}}"#);
        let queue = if number % 2 == 0 { "sq".to_owned() } else { format!("pq:w{}", number + 1) };
        let _length: u64 = cluster.redis.cli(&["LPUSH", &queue, &pushed]).await;
    }
    let _length: u64 = cluster.redis.cli(&["LPUSH", "sq", "no pod"]).await;
    assert!(cluster.store.cordon(&NodeName::new(format!("w{NODES}")).unwrap(), true).await.unwrap());
    let zone: OwnLabels = [("zone".to_owned(), Some("a".to_owned()))].into();
    for number in 1..=BROKEN_NODES {
        let name = NodeName::new(format!("w{number}")).unwrap();
        cluster.store.label_node(&name, &zone).await.unwrap();
    }
    let wanted = SERVICES + PODS + 10 + 10 + 8;
    eventually_within(Duration::from_secs(60), "all pods run", || async {
        let running = cluster.engine.sim().running();
        check(running == wanted, || format!("{running} of {wanted}"))
    })
    .await;
    Walk::new(cluster, services)
}

/// Whole keys, and prefixes that end in a colon.
fn documented_kinds() -> BTreeSet<String> {
    let page = include_str!("../../../docs/reference/redis.md");
    let section = page.split("## What bounds each key").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn kind_type(key: &str) -> &'static str {
    let kind = match key {
        "uq:at" | "uq:why" | "uq:class" | "uq:by_class" | "addresses:free" => key,
        _ if key.starts_with("volumes:") => key,
        _ => key.find(':').map_or(key, |end| &key[..=end]),
    };
    match kind {
        "events" | "decisions" => "stream",
        "meta" | "uq" | "uq:why" | "unconfirmed" | "held" | "rollouts" | "relations" | "routes"
        | "proxies" | "ep:" => "hash",
        "uq:class" | "history:" | "done:" | "tries:" | "certificate:" | "acme_accounts" | "prepared:" => {
            "hash"
        }
        "node:" | "pod:" | "service:" | "slots:" | "secret:" | "config:" | "registry:" | "volume:" => "hash",
        "volumes:reports" | "volumes:abandoned" | "volumes:copies" | "addresses" => "hash",
        "sq" | "dq" | "pq:" | "rq:" | "fq:" | "xr:" | "recovery:" => "list",
        "uq:at" | "uq:by_class" | "beats" | "schedulers" | "addresses:free" | "runs:"
        | "volumes:given_up" => "zset",
        "services" | "pushed" | "nodes" | "former_specs" | "secrets" | "configs" | "registries" | "cs:"
        | "stop:" | "volumes" | "volumes:problems" | "rv:" | "vs:" => "set",
        "hb:" | "spec:" | "lease:" | "scheduler:" | "scheduler_forms:" | "recovery" | "usage:"
        | "usage_wanted" | "usage_wanted:" => "string",
        other => panic!("the walk does not know the keys {other:?}: add them here"),
    }
}

fn fields(keyspace: &Keyspace, key: &str) -> Vec<String> {
    match keyspace.get(key) {
        Some(KeyEntry::Hash(fields)) => fields.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn pods_on(keyspace: &Keyspace, node: &str) -> BTreeSet<PodId> {
    let pods = keyspace.below("pod:").filter(|(id, _)| keyspace.field(&format!("pod:{id}"), "node") == node);
    pods.filter_map(|(id, _)| PodId::new(id).ok()).collect()
}

fn pods_of(keyspace: &Keyspace, service: &str) -> BTreeSet<PodId> {
    let slots = keyspace.elements(&format!("slots:{service}"));
    slots.into_iter().filter_map(|id| PodId::new(String::from_utf8_lossy(id)).ok()).collect()
}

/// A short walk has one batch, as varied as possible.
fn spread(objects: &[String], values: impl Fn(&str) -> Vec<WrongValue>) -> Vec<Vec<WrongValue>> {
    let count = objects.iter().map(|key| values(key).len()).max().unwrap_or_default();
    let mut batches: Vec<Vec<WrongValue>> = Vec::new();
    let indexes: Vec<usize> = match is_complete() || count <= objects.len() {
        true => (0..count).collect(),
        false => (0..objects.len()).map(|number| number * count / objects.len()).collect(),
    };
    for (number, index) in indexes.into_iter().enumerate() {
        let object = number % objects.len();
        if object == 0 {
            batches.push(Vec::new());
        }
        // The last value stands for the missing fields of an object.
        let mut all = values(&objects[object]);
        let value = all.swap_remove(index.min(all.len() - 1));
        batches.last_mut().unwrap().push(value);
    }
    batches
}

async fn walk_pods(walk: &mut Walk) {
    let before = walk.cluster.redis_keyspace().await;
    let pods: Vec<String> = pods_of(&before, "many").iter().map(|id| format!("pod:{id}")).collect();
    for batch in spread(&pods, |key| wrong_values(key, "hash", &fields(&before, key))) {
        let named = batch.iter().filter_map(|value| PodId::new(&value.key["pod:".len()..]).ok());
        let named = Named { pods: named.collect(), ..Named::default() };
        walk.round("pod:", &batch, &named).await;
    }
}

async fn walk_services(walk: &mut Walk, kind: &str) {
    let names: Vec<String> =
        walk.services.iter().map(|s| name_of(s).to_owned()).filter(|name| name.starts_with("one-")).collect();
    let before = walk.cluster.redis_keyspace().await;
    let keys: Vec<String> = names
        .iter()
        .map(|name| match kind {
            "spec:" => format!("spec:{}", before.field(&format!("service:{name}"), "spec")),
            _ => format!("{kind}{name}"),
        })
        .collect();
    for batch in spread(&keys, |key| wrong_values(key, kind_type(kind), &fields(&before, key))) {
        let before = walk.cluster.redis_keyspace().await;
        let hit: Vec<&String> = keys
            .iter()
            .zip(&names)
            .filter(|(key, _)| batch.iter().any(|v| v.key == **key))
            .map(|(_, n)| n)
            .collect();
        let pods = hit.iter().flat_map(|name| pods_of(&before, name)).collect();
        let named = Named { pods, services: hit.into_iter().cloned().collect(), ..Named::default() };
        walk.round(kind, &batch, &named).await;
    }
}

async fn walk_nodes(walk: &mut Walk, kind: &str) {
    let before = walk.cluster.redis_keyspace().await;
    let keys: Vec<String> = (1..=BROKEN_NODES).map(|number| format!("{kind}w{number}")).collect();
    for batch in spread(&keys, |key| wrong_values(key, kind_type(kind), &fields(&before, key))) {
        let before = walk.cluster.redis_keyspace().await;
        let nodes: BTreeSet<NodeName> =
            batch.iter().filter_map(|value| NodeName::new(&value.key[kind.len()..]).ok()).collect();
        let pods = nodes.iter().flat_map(|node| pods_on(&before, node.as_str())).collect();
        walk.round(kind, &batch, &Named { pods, nodes, ..Named::default() }).await;
    }
}

async fn walk_single(walk: &mut Walk, keys: &[String]) {
    let before = walk.cluster.redis_keyspace().await;
    let values: Vec<Vec<WrongValue>> = keys
        .iter()
        .map(|key| {
            let kind = before.get(key).map_or_else(|| kind_type(key), type_of);
            wrong_values(key, kind, &Vec::new())
        })
        .collect();
    let most = values.iter().map(Vec::len).max().unwrap_or_default();
    for index in 0..most {
        let batch: Vec<WrongValue> = values.iter().filter_map(|of_key| of_key.get(index).cloned()).collect();
        walk.round(&format!("the cluster's keys: {}", batch[0].what), &batch, &Named::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_with_every_wrong_value_harms_only_what_it_names() {
    let mut walk = cluster().await;
    let mut single = Vec::new();
    let chosen = std::env::var("KUBELEET_WALK_KIND").ok();
    for kind in documented_kinds() {
        if chosen.as_ref().is_some_and(|chosen| !chosen.split(',').any(|one| one == kind)) {
            continue;
        }
        match kind.as_str() {
            "broken:" => {}
            "pod:" => walk_pods(&mut walk).await,
            "service:" | "slots:" | "spec:" | "done:" | "tries:" | "runs:" => {
                walk_services(&mut walk, &kind).await
            }
            "node:" | "hb:" | "pq:" | "rq:" | "cs:" | "stop:" | "xr:" | "usage:" | "usage_wanted:" => {
                walk_nodes(&mut walk, &kind).await;
            }
            "lease:" => single.push("lease:reconcile".to_owned()),
            "fq:" | "scheduler:" | "scheduler_forms:" => {
                let schedulers: Vec<String> =
                    walk.cluster.redis.cli(&["ZRANGE", "schedulers", "0", "-1"]).await;
                single.extend(schedulers.into_iter().map(|id| format!("{kind}{id}")));
            }
            // One request writes and reads it, and it expires.
            "recovery:" | "xs:" | "xi:" | "xo:" => {}
            // No pod of the walk uses one; `scripts/values.rs` breaks them.
            "secret:" | "config:" | "registry:" => {}
            // No rule of the walk has `tls: auto`; `scripts/certificates.rs` breaks them.
            "certificate:" => {}
            _ => single.push(kind),
        }
    }
    walk_single(&mut walk, &single).await;
    walk.finish();
}

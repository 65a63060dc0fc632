//! Random writes while 200 pods run: a pod stops only if a write names it, and no loop is wedged.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kubeleet_tests::Keyspace;
use kubeleet_tests::in_process::InProcessCluster;
use kubeleet_tests::recorded_engine::Act;
use model::ids::NodeName;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::explain::explain;
use crate::rounds::{Named, Walk};
use crate::writes::{Protected, Writer};

const NODES: u32 = 10;
/// Writes may name nodes and services with smaller numbers.
const FIRST_PROTECTED_NODE: usize = 3;
const DEFAULT_WRITES: usize = 5_000;
/// Writes between two checks.
const EPOCH: usize = 2_500;
const BATCH: usize = 100;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn services() -> Vec<Value> {
    let service = |name: &str, replicas: u32, on_disconnect: &str| json!({"name": name, "image": "x", "replicas": replicas, "on_disconnect": on_disconnect});
    let mut all: Vec<Value> = (0..20).map(|number| service(&format!("victim-{number}"), 2, "keep")).collect();
    all.push(service("safe", 100, "keep"));
    all.push(service("strict", 60, "stop"));
    all
}

/// Pods of protected services on an unprotected node are not protected.
fn protected(keyspace: &Keyspace) -> Protected {
    let mut ids: BTreeSet<String> = ["safe", "strict"].map(str::to_owned).into();
    let nodes: BTreeSet<String> =
        (FIRST_PROTECTED_NODE..=NODES as usize).map(|number| format!("w{number}")).collect();
    for service in ["safe", "strict"] {
        ids.insert(keyspace.field(&format!("service:{service}"), "spec"));
        for pod in keyspace.elements(&format!("slots:{service}")) {
            ids.insert(String::from_utf8_lossy(pod).into_owned());
        }
    }
    for (id, _) in keyspace.below("pod:") {
        if nodes.contains(&keyspace.field(&format!("pod:{id}"), "node")) && ids.contains(id) {
            ids.insert(keyspace.field(&format!("pod:{id}"), "assignment"));
        }
    }
    for node in &nodes {
        ids.insert(keyspace.field(&format!("node:{node}"), "incarnation"));
    }
    ids.extend(nodes);
    Protected(ids)
}

fn untouchable(keyspace: &Keyspace, protected: &Protected) -> BTreeSet<String> {
    let pods = keyspace.below("pod:").map(|(id, _)| id.to_owned());
    pods.filter(|id| {
        protected.0.contains(id) && protected.0.contains(&keyspace.field(&format!("pod:{id}"), "node"))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_writes_stop_no_pod_that_they_do_not_name() {
    let (writes, seed) = (number("FUZZ_WRITES", DEFAULT_WRITES), number("FUZZ_SEED", 1));
    println!("{writes} writes, seed {seed}: FUZZ_SEED={seed} repeats them");
    let cluster = InProcessCluster::start(NODES).await;
    let services = services();
    for service in &services {
        cluster.http.post("/service", service).await;
    }
    eventually_within(Duration::from_secs(60), "200 pods run", || async {
        let running = cluster.engine.sim().running();
        check(running == 200, || format!("{running} run"))
    })
    .await;
    let keyspace = cluster.redis_keyspace().await;
    let protected = protected(&keyspace);
    let untouchable = untouchable(&keyspace, &protected);
    println!("{} of 200 pods are named by no write", untouchable.len());
    let victims: Vec<Value> = services.clone();
    let mut walk = Walk::new(cluster, victims);
    let mut writer = Writer::new(StdRng::seed_from_u64(seed as u64), protected);
    let begin = Instant::now();
    let named = Named {
        nodes: (1..FIRST_PROTECTED_NODE).map(|n| NodeName::new(format!("w{n}")).unwrap()).collect(),
        services: (0..20).map(|number| format!("victim-{number}")).collect(),
        ..Named::default()
    };
    let mut done = 0;
    while done < writes {
        let until = writes.min(done + EPOCH.max(writes / 50));
        while done < until {
            let keyspace = walk.cluster.redis_keyspace().await;
            let mut keys: Vec<String> = keyspace.entries().map(|(key, _)| key.to_owned()).collect();
            keys.retain(|key| !key.starts_with("broken:"));
            let batch: Vec<_> = (0..BATCH.min(until - done)).map(|_| writer.next(&keyspace, &keys)).collect();
            done += batch.len();
            walk.write_leniently(&batch).await;
        }
        walk.look(&format!("after {done} writes"), &named).await;
        for act in walk.cluster.engine.acts_since(0) {
            if act.act != Act::Started && untouchable.contains(act.pod.as_str()) {
                let why = explain(&walk.cluster, &act.pod, &act.handle).await;
                walk.fail("fuzzing", format!("{} was {:?}: {}\n{why}", act.pod, act.act, act.handle));
            }
        }
        walk.stop_if_failed(&format!("seed {seed}, after {done} writes"));
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64();
    println!(
        "{done} writes in {:.1?}, {rate:.0} a second; 0 of {} stopped",
        begin.elapsed(),
        untouchable.len()
    );
    walk.finish();
}

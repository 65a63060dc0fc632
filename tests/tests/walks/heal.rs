//! Everybody behaves, as the daemons' loops do; the cluster must come to rest as desired.

use common::ids::PodId;
use common::store::Unpark;
use kubeleet_tests::invariants::{Running, against_containers, unrest};
use kubeleet_tests::keyspace::Entry;
use kubeleet_tests::{Keyspace, bed};

use crate::cluster::{Cluster, SERVICES};
use crate::walk;

/// A round does what each loop does once; a few are enough, for each heals what it sees.
const ROUNDS: usize = 12;

/// Lets the loops run until nothing is left to do.
pub(crate) async fn comes_to_rest(cluster: &mut Cluster, seed: u64) {
    let mut wrong = Vec::new();
    for _ in 0..ROUNDS {
        round(cluster).await;
        let keyspace = cluster.bed.keyspace().await;
        wrong = unrest(&keyspace);
        wrong.extend(against_machines(cluster, &keyspace));
        if wrong.is_empty() {
            return;
        }
    }
    panic!("seed {seed}: it does not come to rest: {wrong:#?}\n{}", cluster.story());
}

async fn round(cluster: &mut Cluster) {
    for on in 0..cluster.workers.len() {
        for _ in 0..20 {
            walk::drain_on(cluster, on).await;
        }
        walk::register_on(cluster, on).await;
        walk::heartbeat_on(cluster, on).await;
        walk::register_on(cluster, on).await;
        missing_containers(cluster, on).await;
    }
    for service in SERVICES {
        let name = service.parse().unwrap();
        walk::reconcile(cluster, &name).await;
        walk::requeue_missing(cluster, &name).await;
    }
    heal_pushed(cluster).await;
    cluster.bed.store.unpark(Unpark::All, 1000).await.unwrap();
    let mut ghosts = std::mem::take(&mut cluster.ghosts);
    ghosts.extend(cluster.schedulers.iter().map(|scheduler| scheduler.id.clone()));
    for ghost in &ghosts {
        let () = cluster.bed.redis.cli(&["ZADD", "schedulers", "1000", ghost.as_str()]).await;
        cluster.bed.store.return_orphans(ghost, bed::DEAD_AFTER, 1000).await.unwrap();
    }
    for on in 0..cluster.workers.len() {
        if let Some(session) = cluster.workers[on].session.clone() {
            cluster.bed.assign_all(&session).await;
        }
        walk::claim_on(cluster, on, 1000).await;
        walk::ack_on(cluster, on).await;
    }
}

/// What a worker's supervision finds: pods of its own without a container.
async fn missing_containers(cluster: &mut Cluster, on: usize) {
    let keyspace = cluster.bed.keyspace().await;
    let name = cluster.workers[on].name;
    let mut missing: Vec<PodId> = Vec::new();
    for (uuid, _) in keyspace.below("pod:") {
        let key = format!("pod:{uuid}");
        let here = keyspace.field(&key, "node") == name && keyspace.field(&key, "phase") == "running";
        let held = cluster.workers[on].containers.get(&PodId::new(uuid).unwrap());
        if here && held.map(|held| held.as_str()) != Some(&keyspace.field(&key, "assignment")) {
            missing.push(PodId::new(uuid).unwrap());
        }
    }
    for pod in missing {
        cluster.workers[on].containers.remove(&pod);
        walk::lost_on(cluster, on, &pod).await;
    }
}

/// Pushed pods are wanted until somebody stops them; those that ended rest.
async fn heal_pushed(cluster: &Cluster) {
    let store = &cluster.bed.store;
    let ids = store.pushed_pods().await.unwrap();
    let schedulers: Vec<_> = store.schedulers().await.unwrap().into_iter().map(|(id, _)| id).collect();
    for record in store.pods(&ids).await.unwrap().into_iter().flatten() {
        store.requeue_missing(&record, &schedulers).await.unwrap();
    }
}

fn against_machines(cluster: &Cluster, keyspace: &Keyspace) -> Vec<String> {
    let nodes: Vec<String> = cluster.workers.iter().map(|worker| worker.name.to_owned()).collect();
    let containers: Vec<Running> = cluster
        .workers
        .iter()
        .flat_map(|worker| {
            worker.containers.iter().map(|(pod, assignment)| Running {
                pod: pod.to_string(),
                assignment: assignment.to_string(),
                node: worker.name.to_owned(),
            })
        })
        .collect();
    let mut wrong = against_containers(keyspace, &nodes, &containers);
    if let Some(Entry::List(letters)) = keyspace.get("dq") {
        // Nothing here is malformed; only pods that were tried too often may have gone there.
        for letter in letters {
            let text = String::from_utf8_lossy(letter);
            if !text.contains("tried too often") {
                wrong.push(format!("a dead letter: {text}"));
            }
        }
    }
    wrong
}

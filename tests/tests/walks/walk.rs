//! One random step. Every answer is allowed: the walkers act on knowledge that may be old.

use std::time::Duration;

use common::ids::{AssignmentId, PodId, SchedulerId, ServiceName};
use common::lifecycle::Phase;
use common::payload::Payload;
use common::spec::ServiceInput;
use common::store::{
    Ack, AckItem, Assignment, Claim, ClaimReply, FinishReport, Outcome, Parked, PodRef, PutMode,
    Registration, Unpark, Write,
};
use kubeleet_tests::bed::{ATTEMPTS, DEAD_AFTER, REQUEST, facts, node, pushed};

use crate::cluster::{Cluster, Zombie};

/// Does something; says what.
pub(crate) async fn step(cluster: &mut Cluster) -> String {
    let did = match cluster.dice.throw(28) {
        0..=2 => take(cluster).await,
        3..=5 => assign(cluster).await,
        6 => park(cluster).await,
        7 => unpark(cluster).await,
        8 => scheduler_crashes(cluster).await,
        9 => return_orphans(cluster).await,
        10..=12 => claim(cluster).await,
        13..=14 => ack(cluster).await,
        15 => heartbeat(cluster).await,
        16 => container_ends(cluster).await,
        17 => worker_crashes(cluster).await,
        18 | 24..=27 => register(cluster).await,
        19 => node_dies(cluster).await,
        20 => drain(cluster).await,
        21 => scale(cluster).await,
        22 => zombie_speaks(cluster).await,
        _ => outsider(cluster).await,
    };
    cluster.note(did.clone());
    did
}

async fn take(cluster: &mut Cluster) -> String {
    let (which, count) = (cluster.dice.throw(2), 1 + cluster.dice.throw(4));
    let scheduler = &mut cluster.schedulers[which];
    let taken = cluster.bed.store.take(&scheduler.id, count).await.unwrap();
    scheduler.hand = taken.into_iter().map(|raw| Payload::parse(raw).unwrap()).collect();
    format!("scheduler {which} takes {}", scheduler.hand.len())
}

async fn assign(cluster: &mut Cluster) -> String {
    let (which, on) = (cluster.dice.throw(2), cluster.dice.throw(3));
    let name = node(cluster.workers[on].name);
    let store = &cluster.bed.store;
    let incarnation = store.node(&name).await.unwrap().and_then(|node| node.incarnation);
    let scheduler = &mut cluster.schedulers[which];
    let one = |payload: &Payload| Assignment {
        payload: payload.clone(),
        node: name.clone(),
        incarnation: incarnation.clone(),
        request: REQUEST,
    };
    let assignments: Vec<_> = scheduler.hand.iter().map(one).collect();
    let outcomes = store.assign(&scheduler.id, DEAD_AFTER, &assignments).await.unwrap();
    format!("scheduler {which} assigns to {name}: {outcomes:?}")
}

async fn park(cluster: &mut Cluster) -> String {
    let which = cluster.dice.throw(2);
    let scheduler = &mut cluster.schedulers[which];
    let one =
        |payload: Payload| Parked { payload, request: REQUEST, refusals: Vec::new(), message: "full".into() };
    let parked: Vec<_> = scheduler.hand.drain(..).map(one).collect();
    let outcomes = cluster.bed.store.park(&scheduler.id, &parked).await.unwrap();
    format!("scheduler {which} parks: {outcomes:?}")
}

async fn unpark(cluster: &mut Cluster) -> String {
    let count = cluster.bed.store.unpark(Unpark::All, 3).await.unwrap();
    format!("{count} are tried again")
}

async fn scheduler_crashes(cluster: &mut Cluster) -> String {
    let which = cluster.dice.throw(2);
    let scheduler = &mut cluster.schedulers[which];
    // The next one may still act on what the dead one had in mind, as if a paused process went on.
    cluster.ghosts.push(std::mem::replace(&mut scheduler.id, SchedulerId::random()));
    format!("scheduler {which} crashes")
}

async fn return_orphans(cluster: &mut Cluster) -> String {
    let mut returned = 0;
    for ghost in &cluster.ghosts {
        let () = cluster.bed.redis.cli(&["ZADD", "schedulers", "XX", "1000", ghost.as_str()]).await;
        returned += cluster.bed.store.return_orphans(ghost, DEAD_AFTER, 2).await.unwrap().unwrap_or(0);
    }
    format!("{returned} orphans are returned")
}

/// Claims all that is in rq after a few more were taken.
pub(crate) async fn claim(cluster: &mut Cluster) -> String {
    let (on, more) = (cluster.dice.throw(3), cluster.dice.throw(4));
    claim_on(cluster, on, more).await
}

pub(crate) async fn claim_on(cluster: &mut Cluster, on: usize, more: usize) -> String {
    let Some(session) = cluster.workers[on].session.clone() else { return "no worker claims".into() };
    session.take_more(more).await.unwrap();
    let mut items = Vec::new();
    for raw in session.starting().await.unwrap() {
        items.push(cluster.bed.claim_item(&Payload::parse(raw).unwrap()).await);
    }
    let claims = match session.claim(&items, ATTEMPTS, Duration::ZERO).await.unwrap() {
        Ok(ClaimReply::Claims(claims)) => claims,
        other => return format!("{} claims: {other:?}", cluster.workers[on].name),
    };
    for (item, claim) in items.into_iter().zip(&claims) {
        match claim {
            Claim::Start { assignment, .. } => {
                cluster.workers[on].containers.insert(item.payload.id.clone(), assignment.clone());
                let started = &mut cluster.workers[on].started;
                started.retain(|ack| ack.payload.id != item.payload.id);
                started.push(AckItem {
                    payload: item.payload,
                    assignment: assignment.clone(),
                    address: String::new(),
                });
            }
            Claim::Stopped => drop(cluster.workers[on].containers.remove(&item.payload.id)),
            Claim::Exhausted { .. } | Claim::Orphan => {
                let id = item.payload.id.clone();
                let _fenced = session.reject(&item.payload.raw, Some(&id), "tried too often").await.unwrap();
                cluster.workers[on].containers.remove(&id);
            }
            Claim::Running | Claim::Stale | Claim::Gone => {}
        }
    }
    format!("{} claims: {claims:?}", cluster.workers[on].name)
}

async fn ack(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    ack_on(cluster, on).await
}

pub(crate) async fn ack_on(cluster: &mut Cluster, on: usize) -> String {
    let worker = &mut cluster.workers[on];
    let Some(session) = worker.session.clone() else { return "no worker acknowledges".into() };
    let items = std::mem::take(&mut worker.started);
    let Ok(answers) = session.ack(&items).await.unwrap() else { return format!("{} is fenced", worker.name) };
    for (item, answer) in items.iter().zip(&answers) {
        if *answer == Ack::Stale && worker.containers.get(&item.payload.id) == Some(&item.assignment) {
            worker.containers.remove(&item.payload.id);
        }
    }
    format!("{} acknowledges: {answers:?}", worker.name)
}

async fn heartbeat(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    heartbeat_on(cluster, on).await
}

/// Beats, and does as it is told: removes what is foreign, stops what is to be stopped.
pub(crate) async fn heartbeat_on(cluster: &mut Cluster, on: usize) -> String {
    let worker = &mut cluster.workers[on];
    let Some(session) = worker.session.clone() else { return "no worker beats".into() };
    let asked: Vec<_> = worker.containers.clone().into_iter().collect();
    let reply = match session.heartbeat(None, None, &asked).await.unwrap() {
        Ok(reply) => reply,
        Err(fenced) => {
            let started = std::mem::take(&mut worker.started);
            cluster.zombies.push(Zombie { session, started });
            worker.session = None;
            if fenced == common::store::Fenced::Dead {
                worker.containers.clear();
            }
            return format!("{} learns that it is {fenced:?}", worker.name);
        }
    };
    for pod in &reply.foreign {
        worker.containers.remove(pod);
        worker.started.retain(|item| item.payload.id != *pod);
    }
    for pod in &reply.stop {
        finish(cluster, on, pod, Outcome::Stopped).await;
    }
    format!("{} beats: {reply:?}", cluster.workers[on].name)
}

async fn finish(cluster: &mut Cluster, on: usize, pod: &PodId, outcome: Outcome) -> String {
    let worker = &mut cluster.workers[on];
    let Some(session) = worker.session.clone() else { return "no worker".into() };
    let record = cluster.bed.store.pod(pod).await.unwrap();
    // What it knows of itself, else what the record says while it is to be stopped here; else it is told that it is stale.
    let here = record.as_ref().filter(|record| record.phase == Phase::Stopping);
    let said = here.and_then(|record| record.assignment.clone());
    let held = worker.containers.get(pod).cloned().or(said).unwrap_or_else(AssignmentId::random);
    let service = record.as_ref().and_then(|record| record.service.clone());
    let payload = match &record {
        Some(record) => cluster.bed.store.payload_of(record).await.unwrap(),
        None => None,
    };
    let raw = payload.map(|payload| payload.raw).unwrap_or_default();
    let report = FinishReport { outcome, reason: "", message: "", exit_code: Some(0) };
    let reference = PodRef { id: pod, assignment: &held };
    let answer = session.finish(reference, &raw, service.as_ref(), &report).await.unwrap();
    if answer == Ok(Write::Done) || answer == Ok(Write::Stale) {
        worker.containers.remove(pod);
        worker.started.retain(|item| item.payload.id != *pod);
    }
    format!("{answer:?}")
}

/// A container ends by itself, or is found gone.
async fn container_ends(cluster: &mut Cluster) -> String {
    let (on, how, chance) = (cluster.dice.throw(3), cluster.dice.throw(3), cluster.dice.throw(100));
    let worker = &cluster.workers[on];
    let running: Vec<_> = worker.containers.keys().cloned().collect();
    if running.is_empty() {
        return "nothing ends".into();
    }
    let pod = running[chance % running.len()].clone();
    let outcome = match how {
        0 => Outcome::Succeeded,
        1 => Outcome::Failed,
        _ => return lost_on(cluster, on, &pod).await,
    };
    let answer = finish(cluster, on, &pod, outcome).await;
    format!("{} says that {pod} ended, {outcome:?}: {answer}", cluster.workers[on].name)
}

pub(crate) async fn lost_on(cluster: &mut Cluster, on: usize, pod: &PodId) -> String {
    let worker = &mut cluster.workers[on];
    let Some(session) = worker.session.clone() else { return "no worker misses anything".into() };
    let Some(record) = cluster.bed.store.pod(pod).await.unwrap() else { return "nobody knows it".into() };
    let Some(held) = worker.containers.remove(pod).or(record.assignment.clone()) else {
        return "not its own".into();
    };
    let Some(payload) = cluster.bed.store.payload_of(&record).await.unwrap() else {
        return "no payload".into();
    };
    let answer = session.lost(PodRef { id: pod, assignment: &held }, &payload.raw).await.unwrap();
    format!("{} misses {pod}: {answer:?}", worker.name)
}

async fn worker_crashes(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    let worker = &mut cluster.workers[on];
    let Some(session) = worker.session.take() else { return "nobody crashes".into() };
    let started = std::mem::take(&mut worker.started);
    cluster.zombies.push(Zombie { session, started });
    format!("{} crashes", worker.name)
}

async fn register(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    register_on(cluster, on).await
}

pub(crate) async fn register_on(cluster: &mut Cluster, on: usize) -> String {
    let worker = &mut cluster.workers[on];
    if worker.session.is_some() {
        return "it has a life".into();
    }
    let room = common::node::Resources { cpu_millis: 64_000, memory_bytes: 64 << 30, pods: 1000 };
    match cluster.bed.store.register(&node(worker.name), &facts(room)).await.unwrap() {
        Registration::Registered { session, requeued } => {
            worker.session = Some(session);
            format!("{} registers, {requeued} go back", worker.name)
        }
        Registration::Draining => format!("{} is being drained", worker.name),
    }
}

async fn node_dies(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    let name = cluster.workers[on].name;
    cluster.bed.silence(name).await;
    let Some(seen) = cluster.bed.store.node(&node(name)).await.unwrap() else { return "no such node".into() };
    let outcome =
        cluster.bed.store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO).await.unwrap();
    format!("{name} is declared dead: {outcome:?}")
}

async fn drain(cluster: &mut Cluster) -> String {
    let on = cluster.dice.throw(3);
    drain_on(cluster, on).await
}

pub(crate) async fn drain_on(cluster: &mut Cluster, on: usize) -> String {
    let name = cluster.workers[on].name;
    let Some(seen) = cluster.bed.store.node(&node(name)).await.unwrap() else { return "no such node".into() };
    let outcome = cluster.bed.store.drain_step(&seen).await.unwrap();
    format!("{name} is drained: {outcome:?}")
}

async fn scale(cluster: &mut Cluster) -> String {
    let name = cluster.any_service();
    let (replicas, image) = (cluster.dice.throw(9), cluster.dice.throw(5));
    let image = if image == 0 { "spaster/alpine-sleep:2" } else { "spaster/alpine-sleep" };
    let input = serde_json::json!({
        "name": name, "image": image, "replicas": replicas, "cpus": "0.1", "memory": "64MiB",
    });
    let desired = serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap();
    let put = cluster.bed.store.put_service(&desired, PutMode::Upsert, None).await.unwrap().0;
    let made = reconcile(cluster, &name).await;
    format!("{name} is wanted {replicas} times: {put:?}, {made}")
}

/// Makes what is missing, stops what is too much or too old or has ended.
pub(crate) async fn reconcile(cluster: &Cluster, name: &ServiceName) -> String {
    let store = &cluster.bed.store;
    let Some(service) = store.service(name).await.unwrap() else { return "it does not exist".into() };
    let slots = store.slots(name).await.unwrap();
    let gone: Vec<_> = {
        let ids: Vec<_> = slots.iter().map(|(_, id)| id.clone()).collect();
        let records = store.pods(&ids).await.unwrap();
        slots
            .iter()
            .zip(records)
            .filter(|(_, record)| record.is_none())
            .map(|(slot, _)| slot.clone())
            .collect()
    };
    store.free_slots(name, &gone).await.unwrap();
    let mut stop = Vec::new();
    for record in cluster.bed.pods(name).await {
        let old = record.generation != service.generation || record.replica >= service.replicas;
        if old || matches!(record.phase, Phase::Failed | Phase::Succeeded | Phase::Stopped) {
            stop.push((record.id, record.node));
        }
    }
    let stopped = store.stop_pods(Some(name), &stop, "Surplus", "").await.unwrap();
    let all: Vec<u32> = (0..service.replicas).collect();
    let created = store.create_pods(&service, &all).await.unwrap();
    format!("{created:?}, {stopped:?}")
}

/// A life that is over says something it had in mind.
async fn zombie_speaks(cluster: &mut Cluster) -> String {
    if cluster.zombies.is_empty() {
        return "no zombie".into();
    }
    let (which, what) = (cluster.dice.throw(cluster.zombies.len()), cluster.dice.throw(3));
    let Zombie { session, started } = &cluster.zombies[which];
    let answer = match (what, started.first()) {
        (0, _) | (_, None) => format!("{:?}", session.heartbeat(None, None, &[]).await.unwrap()),
        (1, _) => format!("{:?}", session.ack(started).await.unwrap()),
        (_, Some(item)) => {
            let pod = PodRef { id: &item.payload.id, assignment: &item.assignment };
            format!("{:?}", session.lost(pod, &item.payload.raw).await.unwrap())
        }
    };
    format!("a zombie of {} says something and hears {answer}", session.node())
}

/// Somebody pushes a pod by hand, or asks for healing on mere suspicion.
async fn outsider(cluster: &mut Cluster) -> String {
    let what = cluster.dice.throw(3);
    if what > 0 {
        cluster.pushed += 1;
        let payload = pushed("test", &format!("mine-{}", cluster.pushed));
        let key = if what == 1 { "sq" } else { "pq:w2" };
        let () = cluster.bed.redis.cli(&[&b"LPUSH"[..], key.as_bytes(), &payload.raw]).await;
        return format!("{} is pushed to {key}", payload.id);
    }
    let name = cluster.any_service();
    format!("healing {name}: {}", requeue_missing(cluster, &name).await)
}

pub(crate) async fn requeue_missing(cluster: &Cluster, name: &ServiceName) -> String {
    let schedulers: Vec<_> =
        cluster.bed.store.schedulers().await.unwrap().into_iter().map(|(id, _)| id).collect();
    let mut outcomes = Vec::new();
    for record in cluster.bed.pods(name).await {
        outcomes.push(cluster.bed.store.requeue_missing(&record, &schedulers).await.unwrap());
    }
    format!("{outcomes:?}")
}

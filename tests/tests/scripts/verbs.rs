//! Every script, each in a state in which its verb has all its work to do.

use std::time::Duration;

use common::ids::{NodeName, PodId, ServiceName};
use common::lifecycle::Phase;
use common::payload::Payload;
use common::spec::ServiceInput;
use common::store::{
    AckItem, ClaimItem, FinishReport, Outcome, Parked, PutMode, Session, StatusReport, StoreError, Unpark,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kubeleet_tests::Bed;
use kubeleet_tests::ablation::SCRIPTS;
use kubeleet_tests::bed::{ATTEMPTS, DEAD_AFTER, Placed, REQUEST, node, pushed};

/// A verb that is ready to be called, any number of times. Gives its answer in words.
pub(crate) struct Ready {
    /// Calls it.
    pub(crate) call: Box<dyn Fn() -> BoxFuture<'static, Result<String, StoreError>>>,
    /// The pod it is about, where it is about one.
    pub(crate) pod: Option<PodId>,
}

/// What only a worker calls: each carries its incarnation.
pub(crate) const WORKERS: [&str; 7] = ["heartbeat", "claim", "ack", "finish", "lost", "report", "reject"];

/// Further states in which a script takes another way.
const OTHER_WAYS: [&str; 5] = [
    "claim a stopping pod",
    "drain a stopping pod",
    "pods_stop a waiting pod",
    "pod_requeue to the grave",
    "reject in flight",
];

/// Every script, and every way through it that writes elsewhere.
pub(crate) fn cases() -> impl Iterator<Item = &'static str> {
    SCRIPTS.iter().map(|(name, _)| *name).chain(OTHER_WAYS)
}

/// The node all of them are about.
pub(crate) const NODE: &str = "w1";

macro_rules! ready {
    ($pod:expr, [$($owned:ident),*] $call:expr) => {
        Ready {
            pod: $pod,
            call: Box::new(move || {
                $(let $owned = $owned.clone();)*
                async move { $call.await.map(|answer| format!("{answer:?}")) }.boxed()
            }),
        }
    };
}

/// Brings the cluster into the state in which this script has all its work to do.
pub(crate) async fn ready(bed: &Bed, case: &str) -> Ready {
    let script = case;
    let (store, me, name) = (bed.store.clone(), bed.scheduler.clone(), node(NODE));
    match script {
        "service_put" => {
            let service = bed.service("web", 1).await;
            let input = serde_json::json!({"name": "web", "image": "other", "replicas": 2});
            let desired = serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap();
            assert_eq!(service.name, desired.name);
            ready!(None, [store, desired] store.put_service(&desired, PutMode::Upsert, None))
        }
        "service_scale" => {
            let service = bed.service("web", 1).await.name;
            ready!(None, [store, service] store.scale_service(&service, 2))
        }
        "service_delete" => {
            let service = bed.service("web", 1).await.name;
            ready!(None, [store, service] store.delete_service(&service))
        }
        "service_forget" => {
            let service = bed.service("web", 0).await;
            store.delete_service(&service.name).await.unwrap();
            ready!(None, [store, service] store.forget_service(&service))
        }
        "pods_create" => {
            let service = bed.service("web", 0).await;
            store.scale_service(&service.name, 3).await.unwrap();
            ready!(None, [store, service] store.create_pods(&service, &[0, 1, 2]))
        }
        "pods_stop" => {
            let Placed { record, .. } = bed.pod_in(Phase::Running, "web", NODE).await;
            let (pod, seen) = (record.id.clone(), [(record.id, record.node)]);
            let service = record.service;
            ready!(Some(pod), [store, service, seen] store.stop_pods(service.as_ref(), &seen, "Surplus", "why"))
        }
        "slot_free" => {
            let (pod, _) = in_hand(bed).await;
            let () = bed.redis.cli(&["DEL", &format!("pod:{pod}")]).await;
            let (service, slots) = ("web".parse::<ServiceName>().unwrap(), [(0, pod)]);
            ready!(None, [store, service, slots] store.free_slots(&service, &slots))
        }
        "take" => {
            bed.service("web", 3).await;
            ready!(None, [store, me] store.take(&me, 2))
        }
        "take_work" => {
            let session = bed.pod_in(Phase::Assigned, "web", NODE).await.session;
            ready!(None, [session] session.take_more(10))
        }
        "assign" => ready_assign(bed).await,
        "park" => {
            let (pod, payload) = in_hand(bed).await;
            let message = "0/0 nodes take it".to_owned();
            let parked = [Parked { payload, request: REQUEST, refusals: Vec::new(), message }];
            ready!(Some(pod), [store, me, parked] store.park(&me, &parked))
        }
        "unpark" => {
            let (pod, payload) = in_hand(bed).await;
            let parked = [Parked { payload, request: REQUEST, refusals: Vec::new(), message: String::new() }];
            store.park(&me, &parked).await.unwrap();
            ready!(Some(pod), [store] store.unpark(Unpark::All, 10))
        }
        "return_orphans" => {
            let (pod, _) = in_hand(bed).await;
            let minute_ago = (store.redis_now().await.unwrap() - 60_000).to_string();
            let () = bed.redis.cli(&["ZADD", "schedulers", &minute_ago, me.as_str()]).await;
            ready!(Some(pod), [store, me] store.return_orphans(&me, DEAD_AFTER, 10))
        }
        "lease" => ready!(None, [store, me] store.lease("reconcile", &me, DEAD_AFTER)),
        "pod_requeue" => {
            let Placed { record, .. } = bed.pod_in(Phase::Assigned, "web", NODE).await;
            let () = bed.redis.cli(&["DEL", "pq:w1"]).await;
            let others = [me];
            ready!(Some(record.id.clone()), [store, record, others] store.requeue_missing(&record, &others))
        }
        "letter_requeue" => {
            let (pod, payload) = in_hand(bed).await;
            store.reject_in_flight(&me, &payload.raw, Some(&pod), "why").await.unwrap();
            let letter = store.letters(0, 1).await.unwrap().remove(0);
            ready!(Some(pod), [store, letter] store.requeue_letter(&letter))
        }
        "writes_unconfirmed" | "writes_confirmed" => {
            // Left behind by an API that ended before it had waited for the replicas.
            let () = bed.redis.cli(&["HSET", "unconfirmed", "web", "some-write 1 0"]).await;
            ready!(None, [store] store.confirm_writes())
        }
        "cordon" => {
            bed.node(NODE).await;
            ready!(None, [store, name] store.cordon(&name, true))
        }
        "declare_dead" => {
            bed.pod_in(Phase::Stopping, "web", NODE).await;
            bed.silence(NODE).await;
            let seen = store.node(&name).await.unwrap().unwrap();
            ready!(None, [store, seen] store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO))
        }
        "drain" => {
            let Placed { record, .. } = bed.pod_in(Phase::Running, "web", NODE).await;
            bed.kill_node(NODE).await;
            let dead = store.node(&name).await.unwrap().unwrap();
            ready!(Some(record.id), [store, dead] store.drain_step(&dead))
        }
        "guest_beat" => {
            let () = bed.redis.cli(&["SET", "hb:w1", "1"]).await;
            ready!(None, [store, name] store.guest_beat(&name, 10))
        }
        "guest_ack" => {
            let () = bed.redis.cli(&["SET", "hb:w1", "1"]).await;
            store.guest_beat(&name, 10).await.unwrap();
            let payload = pushed("test", "mine");
            let () = bed.redis.cli(&[&b"SADD"[..], b"cs:w1", &payload.raw]).await;
            let running = [payload];
            ready!(None, [store, name, running] store.guest_ack(&name, &running))
        }
        "register" => {
            let session = bed.pod_in(Phase::Assigned, "web", NODE).await.session;
            session.take_more(1).await.unwrap();
            let facts = store.node(&name).await.unwrap().unwrap().facts;
            ready!(None, [store, name, facts] answered(&store, &name, &facts))
        }
        other if OTHER_WAYS.contains(&other) => ready_otherwise(bed, other).await,
        _ => ready_worker(bed, script).await,
    }
}

async fn ready_otherwise(bed: &Bed, case: &str) -> Ready {
    let (store, me) = (bed.store.clone(), bed.scheduler.clone());
    if case == "reject in flight" {
        let (pod, payload) = in_hand(bed).await;
        let raw = payload.raw;
        return ready!(Some(pod.clone()), [store, me, raw, pod] store.reject_in_flight(&me, &raw, Some(&pod), "why"));
    }
    let phase = if case == "pods_stop a waiting pod" { Phase::Pending } else { Phase::Stopping };
    let Placed { session, record, payload } = bed.pod_in(phase, "web", NODE).await;
    let service = record.service.clone();
    match case {
        "claim a stopping pod" => {
            let () = bed.redis.cli(&["DEL", "cs:w1"]).await;
            let () = bed.redis.cli(&[&b"LPUSH"[..], b"rq:w1", &payload.raw]).await;
            let items = [ClaimItem { payload, request: REQUEST, service }];
            ready!(None, [session, items] session.claim(&items, ATTEMPTS, Duration::ZERO))
        }
        "drain a stopping pod" => {
            bed.kill_node(NODE).await;
            let dead = store.node(&node(NODE)).await.unwrap().unwrap();
            ready!(None, [store, dead] store.drain_step(&dead))
        }
        "pods_stop a waiting pod" => {
            let raw = store.take(&me, 1).await.unwrap().remove(0);
            let payload = Payload::parse(raw).unwrap();
            let parked = [Parked { payload, request: REQUEST, refusals: Vec::new(), message: String::new() }];
            store.park(&me, &parked).await.unwrap();
            let seen = [(record.id, None)];
            ready!(None, [store, service, seen] store.stop_pods(service.as_ref(), &seen, "Surplus", "why"))
        }
        _ => {
            bed.kill_node(NODE).await;
            let () = bed.redis.cli(&["DEL", "cs:w1"]).await;
            ready!(None, [store, record] store.requeue_missing(&record, &[]))
        }
    }
}

async fn ready_worker(bed: &Bed, script: &str) -> Ready {
    let phase = match script {
        "claim" | "ack" | "reject" => Phase::Assigned,
        "finish" => Phase::Stopping,
        _ => Phase::Running,
    };
    let Placed { session, record, payload } = bed.pod_in(phase, "web", NODE).await;
    session.take_more(1).await.unwrap();
    let id = record.id.clone();
    let held = record.assignment.clone().unwrap();
    let pod = Some(id.clone());
    let service = record.service.clone();
    match script {
        "heartbeat" => {
            let asked = [(id, held)];
            ready!(pod, [session, asked] session.heartbeat(None, Some("the engine is ill"), &asked))
        }
        "claim" => {
            let items = [ClaimItem { payload, request: REQUEST, service }];
            ready!(pod, [session, items] session.claim(&items, ATTEMPTS, Duration::ZERO))
        }
        "ack" => {
            let items = [AckItem { payload, assignment: held, address: "10.0.0.1".to_owned() }];
            ready!(pod, [session, items] session.ack(&items))
        }
        "finish" => {
            ready!(pod, [session, id, held, payload, service] finish(&session, &id, &held, &payload, service))
        }
        "lost" => ready!(pod, [session, id, held, payload] async {
            session.lost(common::store::PodRef { id: &id, assignment: &held }, &payload.raw).await
        }),
        "report" => ready!(pod, [session, id, held] async {
            let status = StatusReport { reason: "CrashLoopBackOff", message: "m", restarts: Some(1), exit_code: Some(2) };
            session.report(common::store::PodRef { id: &id, assignment: &held }, &status).await
        }),
        "reject" => ready!(pod, [session, id, payload] session.reject(&payload.raw, Some(&id), "why")),
        other => panic!("no way to call {other}.lua"),
    }
}

async fn finish(
    session: &Session,
    id: &PodId,
    assignment: &common::ids::AssignmentId,
    payload: &Payload,
    service: Option<ServiceName>,
) -> common::store::Answer<common::store::Write> {
    let pod = common::store::PodRef { id, assignment };
    let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: Some(0) };
    session.finish(pod, &payload.raw, service.as_ref(), &report).await
}

async fn answered(
    store: &common::store::Store,
    name: &NodeName,
    facts: &common::node::NodeFacts,
) -> Result<&'static str, StoreError> {
    store.register(name, facts).await.map(|_| "registered")
}

async fn ready_assign(bed: &Bed) -> Ready {
    let session = bed.node(NODE).await;
    let (store, me) = (bed.store.clone(), bed.scheduler.clone());
    let (pod, payload) = in_hand(bed).await;
    let incarnation = store.node(session.node()).await.unwrap().unwrap().incarnation;
    let one = common::store::Assignment { payload, node: node(NODE), incarnation, request: REQUEST };
    let assignments = [one];
    ready!(Some(pod), [store, me, assignments] store.assign(&me, DEAD_AFTER, &assignments))
}

/// One pod of a service in the scheduler's hands.
async fn in_hand(bed: &Bed) -> (PodId, Payload) {
    bed.service("web", 1).await;
    let raw = bed.store.take(&bed.scheduler, 1).await.unwrap().remove(0);
    let payload = Payload::parse(raw).unwrap();
    (payload.id.clone(), payload)
}

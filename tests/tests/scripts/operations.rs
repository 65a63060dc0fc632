//! Every script, each in a state in which its operation has all its work to do.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kubeleet_tests::Fixture;
use kubeleet_tests::endpoints::read_endpoints;
use kubeleet_tests::fixture::{ATTEMPTS, DEAD_AFTER, Placed, REQUEST, network, node, pushed, report_copies};
use model::ids::{
    AssignmentId, Incarnation, NodeName, PodId, RegistryHost, RequestId, ServiceName, ValueName, VolumeName,
};
use model::network::address::AddressName;
use model::network::certificate::StoredCertificate;
use model::node::labels::OwnLabels;
use model::node::timing::Timing;
use model::node::{HeldPod, NodeInfo, Resources};
use model::pod::image::ImageContent;
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::slot::Slot;
use model::service::members::{Member, Members, Standing};
use model::service::moves::{Move, Moves};
use model::service::volume::{EngineCopy, VolumeClaim, VolumeScope, VolumeSize};
use model::spec::{HostPorts, ServiceInput};
use model::stream::channel::Purpose;
use model::value::registry::{RegistryLogin, StoredLogin};
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;
use model::value::{StoredValue, ValueBytes, ValueKind};
use store::recovery::PodRecovery;
use store::saved_state::SavedVolume;
use store::{
    AckItem, Assignment, Challenge, ClaimItem, ConnectRequest, CronTick, DrainNews, FinishReport,
    ObservedCondition, Parked, PlannedPreemption, PodOutcome, PodRef, PreemptedPod, PutMode, ReplacedPod,
    RolloutMark, SCRIPTS, Session, SessionResult, SharedDirectoryReport, StatusReport, Store, StoreError,
    WriteOutcome,
};
use testkit::fixtures;

pub(crate) struct Operation {
    pub(crate) call: Box<dyn Fn() -> BoxFuture<'static, Result<String, StoreError>>>,
    pub(crate) pod: Option<PodId>,
}

pub(crate) fn worker_scripts() -> impl Iterator<Item = &'static str> {
    [
        "heartbeat",
        "claim",
        "ack",
        "finish",
        "lost",
        "note_images",
        "report",
        "reject",
        "volumes_claim",
        "volumes_report",
        "volumes_measured",
        "shared_directory",
        "disk_pressure",
        "node_problems",
        "node_held",
    ]
    .into_iter()
}

pub(crate) const NODE: &str = "w1";

const EXTERNAL_NODE: &str = "external";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Its special condition, or the script's name.
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    phase: Phase,
}

const OTHER_CASES: [Case; 14] = [
    Case { name: "assign a pod with a volume", script: "assign", phase: Phase::Pending },
    Case { name: "assign a pushed pod", script: "assign", phase: Phase::Pending },
    Case { name: "claim a pushed pod", script: "claim", phase: Phase::Pending },
    Case { name: "claim a stopping pod", script: "claim", phase: Phase::Stopping },
    Case { name: "drain a stopping pod", script: "drain", phase: Phase::Stopping },
    Case { name: "finish a pod that succeeded", script: "finish", phase: Phase::Running },
    Case { name: "finish a pod that failed", script: "finish", phase: Phase::Running },
    Case { name: "park a pushed pod", script: "park", phase: Phase::Pending },
    Case { name: "pods_create a successor", script: "pods_create", phase: Phase::Running },
    Case { name: "pods_recover of a service", script: "pods_recover", phase: Phase::Running },
    Case { name: "pods_stop a waiting pod", script: "pods_stop", phase: Phase::Pending },
    Case { name: "pod_requeue on a dead node", script: "pod_requeue", phase: Phase::Stopping },
    Case { name: "reject in flight", script: "reject", phase: Phase::Pending },
    Case { name: "volumes_report a removal", script: "volumes_report", phase: Phase::Running },
];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let usual = SCRIPTS.iter().map(|script| usual_case(script.name));
    usual.chain(OTHER_CASES)
}

fn usual_case(script: &'static str) -> Case {
    let phase = match script {
        "ack" | "claim" | "external_ack" | "give_back" | "note_images" | "pod_requeue" | "register"
        | "reject" | "take_work" => Phase::Assigned,
        "heartbeat" | "lost" | "report" | "volumes_claim" | "volumes_report" | "volumes_measured"
        | "shared_directory" | "disk_pressure" | "node_problems" | "node_held" | "pods_replace"
        | "pods_stop" | "preempt" | "pods_restore" | "drain" | "channel_open" | "channel_close" => {
            Phase::Running
        }
        "finish" | "declare_dead" => Phase::Stopping,
        "service_forget" => Phase::Stopped,
        _ => Phase::Pending,
    };
    Case { name: script, script, phase }
}

pub(crate) async fn ready(fixture: &Fixture, case: Case) -> Operation {
    let placed = fixture.pod_in(case.phase, "web", NODE).await;
    prepare(fixture, case, &placed).await
}

pub(crate) async fn ready_script(fixture: &Fixture, script: &'static str) -> Operation {
    ready(fixture, usual_case(script)).await
}

macro_rules! operation {
    ($pod:expr, [$($owned:ident),*] $call:expr) => {
        Operation {
            pod: $pod,
            call: Box::new(move || {
                $(let $owned = $owned.clone();)*
                async move { $call.await.map(|result| format!("{result:?}")) }.boxed()
            }),
        }
    };
}

/// If the pod's phase forbids the place, a copy of its payload is there, as after a race.
pub(crate) async fn prepare(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    match case.script {
        "volume_bind" | "volume_copy_remove" | "volume_remove" | "volumes_claim" | "volumes_report"
        | "volumes_measured" | "volumes_restore" => volumes(fixture, case, placed).await,
        "value_put" | "value_delete" | "value_restore" | "rollout_done" => values(fixture, case).await,
        "cron_tick" | "job_count" | "job_end" => jobs(fixture, case).await,
        "registry_put" | "registry_delete" | "registry_restore" => registries(fixture, case).await,
        "certificate_begin" | "certificate_challenge" | "certificate_fail" | "certificate_store" => {
            certificates(fixture, case).await
        }
        "cluster_recover" | "pods_recover" | "service_recover" => recovery(fixture, case, placed).await,
        "members_put" | "moves_put" | "rollout_mark" | "service_put" | "service_restart"
        | "service_scale" | "service_delete" | "service_forget" | "pods_create" | "pods_keep"
        | "pods_replace" | "pods_stop" | "pods_restore" | "slot_free" | "specs_expire"
        | "writes_unconfirmed" | "writes_confirmed" => desired_state(fixture, case, placed).await,
        "take"
        | "assign"
        | "nomination_drop"
        | "park"
        | "preempt"
        | "unpark"
        | "unschedulable_classes"
        | "reclaim_in_flight"
        | "lease"
        | "lease_release"
        | "scheduler_beat"
        | "pod_requeue"
        | "pushed_forget"
        | "dead_letter_requeue" => scheduling(fixture, case, placed).await,
        "address" => {
            let (store, service) = (fixture.store.clone(), placed.record.service.clone().unwrap());
            let name = AddressName { service, slot: Some(0) };
            operation!(None, [store, name] store.address(&name))
        }
        "addresses_free" => {
            let (store, service) = (fixture.store.clone(), placed.record.service.clone().unwrap());
            store.address(&AddressName { service: service.clone(), slot: Some(0) }).await.unwrap();
            store.scale_service(&service, 0).await.unwrap();
            operation!(None, [store] store.free_addresses(0))
        }
        "channel_open" | "channel_close" => channels(fixture, case, placed).await,
        "follow" | "follow_pods" => {
            let (store, service) = (fixture.store.clone(), placed.record.service.clone().unwrap());
            operation!(None, [store, service] read_endpoints(&store, &service, None))
        }
        "note_condition" => {
            let (store, node) = (fixture.store.clone(), node(NODE));
            operation!(None, [store, node] store.note_condition(ObservedCondition::ProxyGone { node: &node, is_on: true }, "why"))
        }
        "cordon" | "declare_dead" | "drain" | "external_beat" | "external_ack" | "members_restore"
        | "former_containers" | "node_drain" | "node_drained" | "node_label" | "node_remove" | "register"
        | "repair" | "usage_correct" => nodes(fixture, case, placed).await,
        "reject" if case.name == "reject in flight" => scheduling(fixture, case, placed).await,
        _ => worker(fixture, case, placed).await,
    }
}

async fn channels(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let (store, name, pod) = (fixture.store.clone(), node(NODE), placed.record.id.clone());
    let id = RequestId::new("c1").unwrap();
    let connect =
        ConnectRequest { pod: pod.clone(), container: None, purpose: Purpose::Forward { port: 80 } };
    if case.script == "channel_close" {
        store.request_channel(&name, &id, &connect, "begun", false).await.unwrap();
        return operation!(None, [store, id, pod] store.close_channel(&id, &pod, true, "ended"));
    }
    operation!(None, [store, name, id, connect] store.request_channel(&name, &id, &connect, "begun", false))
}

async fn values(fixture: &Fixture, case: Case) -> Operation {
    let store = fixture.store.clone();
    let name = ValueName::new("app.conf").unwrap();
    let content = ValueBytes::new(b"listen 80".to_vec());
    let first = StoredValue::seal(ValueKind::Config, name.clone(), 1, &content, None).unwrap();
    if case.script == "value_restore" {
        store.put_value(&first, 10, None).await.unwrap();
        let mut saved = store.backup_value(ValueKind::Config, &name).await.unwrap().unwrap();
        // A backup is old, and its times are those of Redis.
        (saved.created_at, saved.updated_at) = (1, 2);
        store.delete_value(ValueKind::Config, &name).await.unwrap();
        return operation!(None, [store, saved] store.restore_value(&saved));
    }
    if case.script == "rollout_done" {
        let second = StoredValue::seal(ValueKind::Config, name.clone(), 2, &content, None).unwrap();
        for value in [&first, &second] {
            store.put_value(value, 10, None).await.unwrap();
        }
        let note = store.value_rollout_notes().await.unwrap().remove(0);
        return operation!(None, [store, note] store.forget_value_rollout(&note));
    }
    if case.script == "value_delete" {
        store.put_value(&first, 10, None).await.unwrap();
        return operation!(None, [store, name] store.delete_value(ValueKind::Config, &name));
    }
    operation!(None, [store, first] store.put_value(&first, 10, None))
}

async fn registries(fixture: &Fixture, case: Case) -> Operation {
    let store = fixture.store.clone();
    let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let host = RegistryHost::new("registry.example:5000").unwrap();
    let password = ValueBytes::new(b"hunter2".to_vec());
    let login = RegistryLogin { user: "bob".to_owned(), password };
    let login = StoredLogin::seal(host.clone(), &login, &key).unwrap();
    if case.script == "registry_restore" {
        store.put_login(&login, 10).await.unwrap();
        let mut saved = store.backup_login(&host).await.unwrap().unwrap();
        saved.updated_at = 2;
        store.delete_login(&host).await.unwrap();
        return operation!(None, [store, saved] store.restore_login(&saved));
    }
    if case.script == "registry_delete" {
        store.put_login(&login, 10).await.unwrap();
        return operation!(None, [store, host] store.delete_login(&host));
    }
    operation!(None, [store, login] store.put_login(&login, 10))
}

async fn certificates(fixture: &Fixture, case: Case) -> Operation {
    let store = fixture.store.clone();
    assert!(store.lease("acme", &"w1-1", DEAD_AFTER).await.unwrap());
    if case.script == "certificate_begin" {
        return operation!(None, [store] store.begin_certificate("a.example", "acme", "w1-1", "first"));
    }
    store.begin_certificate("a.example", "acme", "w1-1", "first").await.unwrap();
    let challenge = Challenge { token: "t".to_owned(), authorization: "t.k".to_owned() };
    if case.script == "certificate_challenge" {
        return operation!(None, [store, challenge] store.put_challenge("a.example", "first", &challenge));
    }
    store.put_challenge("a.example", "first", &challenge).await.unwrap();
    if case.script == "certificate_fail" {
        return operation!(None, [store] {
            store.fail_certificate("a.example", "first", "why", Duration::from_secs(60))
        });
    }
    let certificate = certificate("a.example", 4_000_000_000);
    operation!(None, [store, certificate] store.put_certificate(&certificate))
}

/// Its text and key are invalid.
pub(crate) fn certificate(host: &str, not_after: u64) -> StoredCertificate {
    let key = SecretKey::parse(&"0f".repeat(32)).unwrap();
    let chain = format!("chain until {not_after}");
    let validity = (not_after - 90 * 86_400, not_after);
    let directory = "https://ca.example/directory";
    StoredCertificate::seal(host, directory, chain, &Secret::new("key"), validity, &key).unwrap()
}

async fn jobs(fixture: &Fixture, case: Case) -> Operation {
    let store = fixture.store.clone();
    let name: ServiceName = "sums".parse().unwrap();
    let image = "spaster/alpine-sleep";
    if case.script == "cron_tick" {
        let cron = serde_json::json!({"kind": "cron", "name": "sums", "image": image, "cron": {"schedule": "@daily"}});
        fixture.service_of(cron).await;
        let seen = store.service(&name).await.unwrap().unwrap();
        let job: ServiceName = "sums-120".parse().unwrap();
        let tick = CronTick { tick: 120, ticks: "120-120".to_owned(), missed: 1, skipped: None };
        return operation!(None, [store, seen, job, tick] store.take_tick(&seen, &job, &tick));
    }
    let job = serde_json::json!({"kind": "job", "name": "sums", "image": image, "job": {"completions": 2}});
    let job = fixture.service_of(job).await;
    if case.script == "job_end" {
        return operation!(None, [store, name] store.end_job(&name, Some(("TooLate", "why"))));
    }
    let pods: Vec<PodId> = fixture.pods(&job.name).await.into_iter().map(|pod| pod.id).collect();
    let () = fixture.redis.cli(&["HSET", &format!("pod:{}", pods[0]), "phase", "succeeded"]).await;
    operation!(None, [store, name, pods] store.count_job_pods(&name, &pods))
}

async fn desired_state(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let store = fixture.store.clone();
    let record = &placed.record;
    let (id, service) = (record.id.clone(), record.service.clone().unwrap());
    match case.script {
        "rollout_mark" => {
            let seen = store.service(&service).await.unwrap().unwrap();
            operation!(None, [store, seen] store.mark_rollout(&seen, RolloutMark::Paused("why")))
        }
        "members_put" => {
            let agent = serde_json::json!({"name": "agent", "image": "a", "mode": "global"});
            let agent = fixture.service_of(agent).await;
            let member = Member { node: node("w1"), standing: Standing::Open };
            let members = Members::of([(0, member)].into());
            operation!(None, [store, agent, members] store.put_members(&agent, &members, Some("w1")))
        }
        "moves_put" => {
            let seen = store.service(&service).await.unwrap().unwrap();
            let moves = Moves::of([(0, Move { pod: id, to: node("w2"), until: None })].into());
            operation!(None, [store, seen, moves] store.put_moves(&seen, &moves, Some("web-0 to w2")))
        }
        "service_put" => {
            let input = serde_json::json!({"name": "web", "image": "other", "replicas": 2});
            let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
            operation!(None, [store, desired] store.put_service(&desired, PutMode::Upsert, None))
        }
        "service_restart" => {
            let seen = store.service(&service).await.unwrap().map(|service| service.revision);
            operation!(None, [store, service] store.restart_service(&service, seen))
        }
        "service_scale" => operation!(None, [store, service] store.scale_service(&service, 2)),
        "service_delete" => operation!(None, [store, service] store.delete_service(&service)),
        "service_forget" => {
            store.delete_service(&service).await.unwrap();
            let service = store.service(&service).await.unwrap().unwrap();
            operation!(None, [store, service] store.forget_service(&service))
        }
        "pods_create" if case.name == "pods_create a successor" => {
            let service = store.service(&service).await.unwrap().unwrap();
            operation!(None, [store, service] store.create_successors(&service, &[0]))
        }
        "pods_create" => {
            store.scale_service(&service, 3).await.unwrap();
            let service = store.service(&service).await.unwrap().unwrap();
            operation!(None, [store, service] store.create_pods(&service, &[0, 1, 2]))
        }
        "pods_stop" => {
            if case.name == "pods_stop a waiting pod" && record.phase == Phase::Pending {
                take_in_flight(fixture, placed).await;
                store.park(&fixture.scheduler, &[parked(&placed.payload)]).await.unwrap();
            }
            let (service, seen) = (Some(service), [(id.clone(), record.node.clone())]);
            operation!(Some(id), [store, service, seen] {
                store.stop_pods(service.as_ref(), &seen, "Surplus", "why")
            })
        }
        "pods_keep" => {
            let () = fixture.redis.cli(&["HSET", "service:web", "generation", "3"]).await;
            let pods = [(id, 1)];
            operation!(None, [store, service, pods] store.keep_pods(&service, &pods))
        }
        "pods_replace" => {
            let pod = ReplacedPod { id, node: record.node.clone().unwrap_or(node(NODE)), successor: None };
            let (seen, pods) = (store.service(&service).await.unwrap().unwrap(), [pod]);
            operation!(None, [store, seen, pods] store.replace_pods(&seen, &pods, "why"))
        }
        "pods_restore" => {
            let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
            let pods = [id];
            operation!(None, [store, service, pods] store.restore_pods(Some(&service), true, &pods))
        }
        "specs_expire" => {
            let spec = record.spec.clone().unwrap();
            let () = fixture.redis.cli(&["SADD", "former_specs", spec.as_str()]).await;
            let (specs, former) = ([spec], store.former_specs().await.unwrap());
            operation!(None, [store, specs, former] store.expire_specs(&former, &specs))
        }
        "slot_free" => {
            let () = fixture.redis.cli(&["DEL", &format!("pod:{id}")]).await;
            let slots = [(Slot::first(0), Some(id))];
            operation!(None, [store, service, slots] store.free_slots(&service, &slots))
        }
        _ => {
            // As after the end of an API that had not waited for the replicas.
            let () = fixture.redis.cli(&["HSET", "unconfirmed", "web", "some-write 1 0"]).await;
            operation!(None, [store] store.confirm_writes())
        }
    }
}

async fn recovery(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let store = fixture.store.clone();
    let service = placed.record.service.clone().unwrap();
    match case.name {
        "cluster_recover" => {
            let cluster = store.cluster_id().await.unwrap().unwrap();
            let () = fixture.redis.cli(&["HDEL", "meta", "cluster"]).await;
            operation!(None, [store, cluster] store.recover_cluster(&cluster, None))
        }
        "service_recover" => {
            let mut saved = store.saved_service(&service).await.unwrap().unwrap();
            for (field, value) in [("revision", "9"), ("created_at", "1"), ("updated_at", "1")] {
                saved.fields.insert(field.to_owned(), value.to_owned());
            }
            operation!(None, [store, saved] store.recover_record(&saved))
        }
        "pods_recover of a service" => {
            let payload = placed.payload.clone();
            let () = fixture.redis.cli(&["DEL", &format!("pod:{}", payload.id)]).await;
            let pods = [lost(payload, Phase::Running)];
            operation!(None, [store, service, pods] store.recover_pods(Some(&service), &pods))
        }
        _ => {
            let phases = [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed];
            let pods = phases.map(|phase| lost(pushed("test", &format!("mine-{phase}")), phase));
            operation!(None, [store, pods] store.recover_pods(None, &pods))
        }
    }
}

fn lost(payload: Payload, phase: Phase) -> PodRecovery {
    let placement = Some((node(NODE), AssignmentId::new("saved").unwrap()));
    PodRecovery {
        slot: Slot::first(payload.replica),
        payload,
        phase,
        placement: placement.filter(|_| phase != Phase::Pending),
        generation: 1,
        restarts: 2,
        address: network().address,
        published_ports: network().ports,
        resource_ids: Default::default(),
        created_at: 0,
        runs: Vec::new(),
        request: REQUEST,
    }
}

fn claim() -> VolumeClaim {
    let service = ServiceName::new("web").unwrap();
    let name = VolumeName::of_replica(&service, "data", 0).unwrap();
    VolumeClaim {
        name,
        service,
        source: "data".to_owned(),
        scope: VolumeScope::Replica(0),
        space: Some(1 << 30),
    }
}

async fn volumes(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let (store, session, claim) = (fixture.store.clone(), placed.session.clone(), claim());
    if case.name == "volumes_report" {
        return operation!(None, [session, claim] session.report_volumes(&[claim.clone().into()], None, DEAD_AFTER));
    }
    if case.script == "volumes_restore" {
        let VolumeClaim { service, source, space, .. } = claim;
        let saved = [SavedVolume {
            service,
            source,
            replica: 0,
            space,
            node: node(NODE),
            engine_id: None,
            epoch: None,
            found: false,
            given_up_at: None,
        }];
        return operation!(None, [store, saved] store.restore_volumes(&saved));
    }
    if case.script == "volumes_claim" {
        let volumes = [(claim, None)];
        return operation!(None, [session, volumes] session.claim_volumes(&volumes, DEAD_AFTER));
    }
    if case.script == "volume_bind" || case.script == "volume_copy_remove" {
        let other = fixture.node("w2").await;
        let copy = |epoch| [EngineCopy { epoch: Some(epoch), ..EngineCopy::from(claim.clone()) }];
        report_copies(&other, &copy(2)).await;
        report_copies(&session, &copy(1)).await;
        let () = fixture.redis.cli(&["DEL", "slots:web"]).await;
        let node = node(NODE);
        if case.script == "volume_bind" {
            return operation!(None, [store, claim, node] store.bind_volume(&claim, &node));
        }
        return operation!(None, [store, claim, node] store.remove_volume_copy(&claim, &node));
    }
    session.report_volumes(&[claim.clone().into()], None, DEAD_AFTER).await.unwrap().unwrap();
    if case.script == "volumes_measured" {
        let size = VolumeSize { name: claim.name, used: 2 << 30, over: "it holds too much".to_owned() };
        return operation!(None, [session, size] session.report_volume_sizes(std::slice::from_ref(&size), &[]));
    }
    if case.script == "volume_remove" {
        return operation!(None, [store, claim] store.remove_volume(&claim.name));
    }
    store.remove_volume(&claim.name).await.unwrap();
    operation!(None, [session, claim] session.report_gone_volumes(std::slice::from_ref(&claim), &[], DEAD_AFTER))
}

async fn scheduling(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let (store, me) = (fixture.store.clone(), fixture.scheduler.clone());
    let (record, mut payload) = (placed.record.clone(), placed.payload.clone());
    let mut id = record.id.clone();
    if matches!(case.name, "assign a pushed pod" | "park a pushed pod") {
        payload = pushed("test", "mine");
        id = payload.id.clone();
        fixture.push(&in_flight_key(fixture), &payload.raw).await;
    } else if !matches!(
        case.script,
        "take" | "lease" | "lease_release" | "pod_requeue" | "preempt" | "nomination_drop"
    ) {
        take_in_flight(fixture, placed).await;
    }
    match case.script {
        "take" => operation!(None, [store, me] store.take(&me, 2)),
        "assign" => {
            let incarnation = store.node(&node(NODE)).await.unwrap().unwrap().incarnation;
            let assignments = [Assignment {
                payload,
                node: node(NODE),
                incarnation,
                request: REQUEST,
                host_ports: HostPorts::default(),
                named: None,
                volumes: if case.name == "assign a pod with a volume" { vec![claim()] } else { Vec::new() },
                seen_labels: None,
                counted: None,
            }];
            operation!(Some(id), [store, me, assignments] store.assign(&me, DEAD_AFTER, &assignments))
        }
        "preempt" => {
            let seen = store.node(&node(NODE)).await.unwrap().unwrap();
            let service = store.service(&ServiceName::new("web").unwrap()).await.unwrap().unwrap();
            let victim = PreemptedPod {
                pod: id.clone(),
                assignment: record.assignment.clone().unwrap_or_else(AssignmentId::random),
                service: service.name.clone(),
                step: service.rollout.step,
                revision: service.revision,
            };
            let incarnation = seen.incarnation.unwrap_or_else(Incarnation::random);
            let kept = Duration::from_secs(60);
            let victims = vec![victim];
            let found = PlannedPreemption { node: seen.name, incarnation, revision: 1, victims, kept };
            let high = fixture.service("high", 1).await.name;
            let waiting = fixture.pods(&high).await.remove(0).id;
            // All of it.
            let request = Resources { memory_bytes: seen.facts.capacity.memory_bytes, ..REQUEST };
            operation!(None, [store, waiting, high, found]
                store.preempt((&waiting, &high), request, DEAD_AFTER, &found, "makes room"))
        }
        "nomination_drop" => {
            let text = format!("{id} 1 2 0 0 0 0");
            let () = fixture.redis.cli(&["HSET", "node:w1", "nominated", &text]).await;
            let name = node(NODE);
            operation!(None, [store, name, id] store.drop_nomination(&name, &id))
        }
        "park" => {
            let parked = [parked(&payload)];
            operation!(Some(id), [store, me, parked] store.park(&me, &parked))
        }
        "unpark" => {
            if record.phase == Phase::Pending {
                store.park(&me, &[parked(&payload)]).await.unwrap();
            } else {
                let () =
                    fixture.redis.cli(&[&b"HSET"[..], b"uq", id.as_str().as_bytes(), &payload.raw]).await;
                let () = fixture.redis.cli(&["ZADD", "uq:at", "1", id.as_str()]).await;
            }
            let () = fixture.redis.cli(&["ZADD", "uq:at", "1", id.as_str()]).await;
            operation!(Some(id), [store] store.unpark_due(10))
        }
        "unschedulable_classes" => {
            store.park(&me, &[parked(&payload)]).await.unwrap();
            let () = fixture.redis.cli(&["ZADD", "uq:by_class", "0", "a 1 no-pod"]).await;
            operation!(Some(id), [store] store.unschedulable_classes("", 10))
        }
        "scheduler_beat" => {
            let timing = Timing::default();
            operation!(None, [store, me, timing] store.scheduler_beat(&me, &timing))
        }
        "reclaim_in_flight" => {
            let minute_ago = (store.redis_now().await.unwrap() - 60_000).to_string();
            let () = fixture.redis.cli(&["ZADD", "schedulers", &minute_ago, me.as_str()]).await;
            operation!(Some(id), [store, me] store.reclaim_in_flight(&me, DEAD_AFTER, 10))
        }
        "pushed_forget" => {
            let () = fixture.redis.cli(&["SADD", "pushed", "without-a-record"]).await;
            let pods = [PodId::new("without-a-record").unwrap()];
            operation!(None, [store, pods] store.forget_pushed(&pods, DEAD_AFTER))
        }
        "lease" => operation!(None, [store, me] store.lease("reconcile", &me, DEAD_AFTER)),
        "lease_release" => {
            assert!(store.lease("reconcile", &me, DEAD_AFTER).await.unwrap());
            operation!(None, [store, me] store.release_lease("reconcile", me.as_str()))
        }
        "pod_requeue" => {
            if case.name == "pod_requeue on a dead node" {
                fixture.kill_node(NODE).await;
            }
            let () = fixture.redis.cli(&["DEL", "sq", "pq:w1", "rq:w1", "cs:w1"]).await;
            let schedulers = [me];
            operation!(Some(id), [store, record, schedulers] store.requeue_missing(&record, &schedulers))
        }
        "dead_letter_requeue" => {
            store.reject_in_flight(&me, &payload.raw, Some(&id), "why").await.unwrap();
            let dead_letter = store.dead_letters(0, 1).await.unwrap().remove(0);
            operation!(Some(id), [store, dead_letter] store.requeue_dead_letter(&dead_letter, None))
        }
        "reject" => {
            let raw = payload.raw;
            let pod = id.clone();
            operation!(Some(id), [store, me, raw, pod] store.reject_in_flight(&me, &raw, Some(&pod), "why"))
        }
        other => panic!("no case for {other}.lua"),
    }
}

async fn nodes(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let (store, name) = (fixture.store.clone(), node(NODE));
    match case.script {
        "cordon" => operation!(None, [store, name] store.cordon(&name, true)),
        "former_containers" => {
            operation!(None, [store, name] store.report_former_containers(&name, &name, 2))
        }
        "declare_dead" => {
            fixture.silence(NODE).await;
            let seen = store.node(&name).await.unwrap().unwrap();
            operation!(None, [store, seen] {
                store.declare_dead(&seen, DEAD_AFTER, Duration::ZERO, Duration::ZERO, fixtures::long_proof())
            })
        }
        "drain" => {
            fixture.kill_node(NODE).await;
            if !is_on_a_node(placed.record.phase) {
                fixture.push("rq:w1", &placed.payload.raw).await;
            }
            let dead = store.node(&name).await.unwrap().unwrap();
            operation!(Some(placed.record.id.clone()), [store, dead] store.drain_step(&dead))
        }
        "external_beat" => {
            let () = fixture.redis.cli(&["SET", &format!("hb:{EXTERNAL_NODE}"), "1"]).await;
            let name = node(EXTERNAL_NODE);
            operation!(None, [store, name] store.external_beat(&name, 10, b"0"))
        }
        "external_ack" => {
            let () = fixture.redis.cli(&["HSET", "node:w1", "kind", "guest"]).await;
            let running = [placed.payload.clone(), pushed("test", "mine")];
            for payload in &running {
                let () = fixture.redis.cli(&[&b"SADD"[..], b"cs:w1", &payload.raw]).await;
            }
            operation!(None, [store, name, running] store.external_ack(&name, &running))
        }
        "members_restore" => {
            let () = fixture.redis.cli(&["DEL", "nodes"]).await;
            operation!(None, [store] store.restore_members())
        }
        "node_drain" => operation!(None, [store, name] store.drain_node(&name, None, false)),
        "node_drained" => {
            store.drain_node(&name, None, false).await.unwrap();
            let (_, drain) = store.drains().await.unwrap().remove(0);
            operation!(None, [store, name, drain] store.note_drain(&name, &drain, DrainNews::Drained))
        }
        "node_label" => {
            let changes: OwnLabels = [("zone".to_owned(), Some("b".to_owned()))].into();
            operation!(None, [store, name, changes] store.label_node(&name, &changes))
        }
        "node_remove" => {
            fixture.kill_node(NODE).await;
            let () = fixture.redis.cli(&["DEL", "pq:w1", "rq:w1", "cs:w1"]).await;
            operation!(None, [store, name] store.remove_node(&name, false))
        }
        "repair" => {
            let () = fixture.redis.cli(&["SADD", "nodes", "gone"]).await;
            let finding = store.check().await.unwrap().into_iter().find(|f| f.key == "nodes").unwrap();
            operation!(None, [store, finding] store.repair(&finding))
        }
        "usage_correct" => {
            let () = fixture.redis.cli(&["HINCRBY", "node:w1", "used_pods", "2"]).await;
            let () = fixture.redis.cli(&["HINCRBY", "node:w1", "used_memory", "1000"]).await;
            let usage = store.node_usage(&[name]).await.unwrap().remove(0);
            operation!(None, [store, usage] store.correct_usage(&usage, &REQUEST, &[]))
        }
        "register" => {
            move_to_rq(fixture, placed).await;
            let info = store.node(&name).await.unwrap().unwrap().facts;
            operation!(None, [store, name, info] register(&store, &name, &info))
        }
        other => panic!("no case for {other}.lua"),
    }
}

async fn worker(fixture: &Fixture, case: Case, placed: &Placed) -> Operation {
    let Placed { session, record, payload } = placed;
    let (session, id, mut payload) = (session.clone(), record.id.clone(), payload.clone());
    let assignment = record.assignment.clone().unwrap_or_else(AssignmentId::random);
    let mut service = record.service.clone();
    let pod = Some(id.clone());
    match case.name {
        "claim a pushed pod" => {
            (payload, service) = (pushed("test", "mine"), None);
            fixture.push("rq:w1", &payload.raw).await;
        }
        "claim a stopping pod" => {
            let () = fixture.redis.cli(&["DEL", "cs:w1"]).await;
            fixture.push("rq:w1", &payload.raw).await;
        }
        "take_work" => {}
        "in_flight" => {
            let giant = vec![b'x'; 600_000];
            fixture.push("rq:w1", &giant).await;
        }
        "claim" | "ack" | "reject" | "give_back" => move_to_rq(fixture, placed).await,
        _ => {}
    }
    let outcome = match case.name {
        "finish a pod that succeeded" => PodOutcome::Succeeded,
        "finish a pod that failed" => PodOutcome::Failed,
        _ => PodOutcome::Stopped,
    };
    match case.script {
        "take_work" => operation!(None, [session] session.pop_more(10)),
        "in_flight" => operation!(None, [session] session.in_flight()),
        "heartbeat" => {
            let asked = [(id, assignment)];
            operation!(pod, [session, asked] session.heartbeat(None, Some("the engine is ill"), 0, &asked))
        }
        "disk_pressure" => {
            operation!(None, [session] session.report_disk_problem("97 % of the disk is used"))
        }
        "node_problems" => {
            let problems = ["cannot save its pods: the disk is full".to_owned()];
            operation!(None, [session, problems] session.report_node_problems(&problems))
        }
        "node_held" => {
            let service = ServiceName::new("web").unwrap();
            let pods = [HeldPod { service, replica: 7, pod: PodId::new("lost").unwrap() }];
            operation!(None, [session, pods] session.report_held_pods(&pods))
        }
        "shared_directory" => {
            let found = SharedDirectoryReport::Found("one".to_owned());
            operation!(None, [session, found] session.report_shared_directory(&found, None))
        }
        "claim" => {
            let items = [ClaimItem { payload, request: REQUEST, host_ports: HostPorts::default() }];
            operation!(pod, [session, items] session.claim(&items, ATTEMPTS, Duration::ZERO))
        }
        "ack" => {
            let items = [AckItem { payload, assignment, network: network(), starting: String::new() }];
            operation!(pod, [session, items] session.ack(&items))
        }
        "finish" => {
            let placed = (id, assignment, payload, service);
            operation!(pod, [session, placed] finish(&session, &placed, outcome))
        }
        "give_back" => operation!(pod, [session, id, assignment, payload] async {
            let pod = PodRef { id: &id, assignment: &assignment };
            session.give_back(pod, &payload.raw, &HostPorts::from_text("8080/tcp".to_owned()), "HostPortTaken", "why").await
        }),
        "lost" => operation!(pod, [session, id, assignment, payload] async {
            session.report_lost(PodRef { id: &id, assignment: &assignment }, &payload.raw).await
        }),
        "note_images" => {
            let spec = record.spec.clone();
            operation!(pod, [session, id, assignment, service, spec] async {
                let images = [ImageContent {
                    image: "web:1".to_owned(),
                    digest: Some("sha256:a".to_owned()),
                    id: "sha256:b".to_owned(),
                }];
                let pod = PodRef { id: &id, assignment: &assignment };
                session.note_images(pod, (service.as_ref(), spec.as_ref()), &images, "differs").await
            })
        }
        "report" => operation!(pod, [session, id, assignment] async {
            let network = network();
            let service = ServiceName::new("web").unwrap();
            let status = StatusReport {
                service: Some(&service),
                reason: "CrashLoop",
                message: "m",
                restarts: Some(1),
                exit_code: Some(2),
                network: Some(&network),
                containers: &[],
                runs: &[],
            };
            session.report(PodRef { id: &id, assignment: &assignment }, &status).await
        }),
        "reject" => operation!(pod, [session, id, payload] session.reject(&payload.raw, Some(&id), "why")),
        other => panic!("no case for {other}.lua"),
    }
}

async fn finish(
    session: &Session,
    (id, assignment, payload, service): &(PodId, AssignmentId, Payload, Option<model::ids::ServiceName>),
    outcome: PodOutcome,
) -> SessionResult<WriteOutcome> {
    let report = FinishReport { exit_code: Some(0), ..FinishReport::new(outcome) };
    session.finish(PodRef { id, assignment }, &payload.raw, service.as_ref(), &report).await
}

async fn register(store: &Store, name: &NodeName, info: &NodeInfo) -> Result<&'static str, StoreError> {
    store.register(name, info, fixtures::claimant(), None).await.map(|_| "registered")
}

fn is_on_a_node(phase: Phase) -> bool {
    matches!(phase, Phase::Assigned | Phase::Running | Phase::Stopping)
}

fn parked(payload: &Payload) -> Parked {
    let message = "0/0 nodes take it".to_owned();
    Parked {
        payload: payload.clone(),
        request: REQUEST,
        refusals: Vec::new(),
        message,
        class: Some("a".to_owned()),
    }
}

fn in_flight_key(fixture: &Fixture) -> String {
    format!("fq:{}", fixture.scheduler)
}

/// Puts a copy there for a pod in another phase.
async fn take_in_flight(fixture: &Fixture, placed: &Placed) {
    if placed.record.phase == Phase::Pending {
        let taken = fixture.store.take(&fixture.scheduler, 1).await.unwrap();
        assert_eq!(taken, std::slice::from_ref(&placed.payload.raw));
    } else {
        fixture.push(&in_flight_key(fixture), &placed.payload.raw).await;
    }
}

/// Puts a copy there for a pod in another phase.
async fn move_to_rq(fixture: &Fixture, placed: &Placed) {
    if placed.record.phase == Phase::Assigned {
        let taken = placed.session.pop_more(1).await.unwrap();
        assert_eq!(taken, std::slice::from_ref(&placed.payload.raw));
    } else {
        fixture.push("rq:w1", &placed.payload.raw).await;
    }
}

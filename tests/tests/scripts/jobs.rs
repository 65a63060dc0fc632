//! Jobs and crons: each index counts once, each tick is taken once.

use std::time::Duration;

use kubeleet_tests::Fixture;
use model::ids::ServiceName;
use model::pod::{EndedRun, PodRecord};
use model::service::Service;
use model::spec::{Kind, ServiceInput};
use serde_json::{Value, json};
use store::recovery::plan;
use store::{
    CreateOutcome, CronTick, FinishReport, PodOutcome, PodRef, PutMode, PutOutcome, RestartOutcome,
    ScaleOutcome, Session, TickOutcome, WriteOutcome,
};

use crate::changing_nothing;

async fn job(fixture: &Fixture, policy: Value) -> Service {
    let input = json!({"kind": "job", "name": "sums", "image": "spaster/alpine-sleep", "job": policy});
    fixture.service_of(input).await;
    read(fixture, "sums").await
}

async fn cron(fixture: &Fixture) -> Service {
    let input = json!({
        "kind": "cron", "name": "night", "image": "spaster/alpine-sleep", "labels": {"team": "a"},
        "job": {"completions": 2}, "cron": {"schedule": "* * * * *"},
    });
    fixture.service_of(input).await;
    read(fixture, "night").await
}

async fn read(fixture: &Fixture, name: &str) -> Service {
    fixture.store.service(&name.parse().unwrap()).await.unwrap().unwrap()
}

fn named(name: &str) -> ServiceName {
    name.parse().unwrap()
}

async fn finish(session: &Session, pod: &PodRecord, exit_code: i64) -> WriteOutcome {
    let run = EndedRun {
        id: format!("run-{}", pod.id),
        container: None,
        node: session.node().clone(),
        ended_at: 0,
        ran_for_ms: Some(5),
        exit_code,
        out_of_memory: false,
        last_output: format!("index {}\n", pod.replica),
    };
    let outcome = if exit_code == 0 { PodOutcome::Succeeded } else { PodOutcome::Failed };
    let runs = [run];
    let report = FinishReport { exit_code: Some(exit_code), runs: &runs, ..FinishReport::new(outcome) };
    let reference = PodRef { id: &pod.id, assignment: pod.assignment.as_ref().unwrap() };
    let service = named("sums");
    let payload = payload(pod);
    session.finish(reference, &payload, Some(&service), &report).await.unwrap().unwrap()
}

fn payload(pod: &PodRecord) -> Vec<u8> {
    let spec = pod.spec.clone().unwrap();
    let payload = model::pod::payload::Payload::for_service(
        pod.name.clone(),
        pod.id.clone(),
        &pod.image,
        pod.replica,
        spec,
    );
    payload.raw.to_vec()
}

async fn running(fixture: &Fixture, session: &Session) -> Vec<PodRecord> {
    fixture.assign_all(session).await;
    fixture.run_all(session).await;
    fixture.pods(&named("sums")).await
}

#[tokio::test]
async fn a_job_that_is_restored_keeps_the_indices_that_are_complete() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let sums = named("sums");
    job(&fixture, json!({"completions": 4, "parallelism": 3})).await;
    let pods = running(&fixture, &session).await;
    finish(&session, &pods[0], 0).await;
    finish(&session, &pods[1], 1).await;
    let saved = fixture.store.backup_service(&sums).await.unwrap().unwrap();
    let before = fixture.store.job_results(&sums).await.unwrap();
    assert_eq!((before.done.len(), before.failed.len()), (1, 1));

    let restore = async || {
        let found = plan(&fixture.store.known_state(&saved).await.unwrap(), &saved);
        fixture.store.recover_service(&found.services[0], true).await.unwrap();
        fixture.store.job_results(&sums).await.unwrap()
    };
    let () = fixture.redis.cli(&["DEL", "service:sums", "slots:sums", "done:sums", "tries:sums"]).await;
    assert_eq!(restore().await, before);

    let older = ["HSET", "service:sums", "revision", "0", "generation", "0"];
    let () = fixture.redis.cli(&older).await;
    let () = fixture.redis.cli(&["HSET", "done:sums", "2", ""]).await;
    assert_eq!(restore().await.done.into_keys().collect::<Vec<_>>(), [0, 2]);
    let () = fixture.redis.cli(&[&older[..], &["created_at", "1"]].concat()).await;
    assert_eq!(restore().await, before, "what another job of this name has done is not done");
}

#[tokio::test]
async fn each_index_counts_once_and_the_last_one_completes_the_job() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    job(&fixture, json!({"completions": 2, "parallelism": 2})).await;
    let pods = running(&fixture, &session).await;
    assert_eq!(pods.len(), 2);
    assert!(read(&fixture, "sums").await.progress.started_at.is_some());
    assert_eq!(finish(&session, &pods[0], 0).await, WriteOutcome::Done);
    let again = changing_nothing(&fixture, finish(&session, &pods[0], 0)).await;
    assert_eq!(again, WriteOutcome::Done);
    let half = read(&fixture, "sums").await;
    assert!(half.progress.is_running());
    let results = fixture.store.job_results(&named("sums")).await.unwrap();
    assert_eq!(results.done.keys().copied().collect::<Vec<_>>(), [0]);
    let result = &results.done[&0];
    assert_eq!((result.failures, result.exit_code), (0, Some(0)));
    assert_eq!(
        (result.node.as_ref(), result.run.as_ref().unwrap().last_output.as_str()),
        (Some(session.node()), "index 0\n")
    );

    finish(&session, &pods[1], 0).await;
    assert!(read(&fixture, "sums").await.progress.is_complete());
    let ended =
        changing_nothing(&fixture, fixture.store.end_job(&named("sums"), Some(("Late", "why")))).await;
    assert!(!ended.unwrap(), "a job that is complete does not fail");
    assert_eq!(fixture.violations().await, Vec::<String>::new());
}

#[tokio::test]
async fn failures_are_counted_by_index_and_a_job_that_failed_counts_nothing_more() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    job(&fixture, json!({"completions": 2, "parallelism": 2})).await;
    let pods = running(&fixture, &session).await;
    finish(&session, &pods[1], 3).await;
    changing_nothing(&fixture, finish(&session, &pods[1], 3)).await;
    let service = read(&fixture, "sums").await;
    assert_eq!((service.progress.failures, service.progress.is_running()), (1, true));
    let results = fixture.store.job_results(&named("sums")).await.unwrap();
    assert_eq!((results.failed[&1].failures, results.failed[&1].exit_code), (1, Some(3)));

    assert!(fixture.store.end_job(&named("sums"), Some(("TooBad", "it is"))).await.unwrap());
    let failed = read(&fixture, "sums").await.progress;
    assert_eq!(failed.failure, Some(("TooBad".to_owned(), "it is".to_owned())));
    finish(&session, &pods[0], 0).await;
    assert!(fixture.store.job_results(&named("sums")).await.unwrap().done.is_empty());
}

#[tokio::test]
async fn of_two_schedulers_that_saw_the_same_one_creates_pods_and_none_of_an_index_that_is_done() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    let seen = job(&fixture, json!({"completions": 5, "parallelism": 1})).await;
    let pods = running(&fixture, &session).await;
    assert_eq!(pods.len(), 1);
    finish(&session, &pods[0], 0).await;
    let create =
        async |job: &Service, indices: &[u32]| fixture.store.create_job_pods(job, indices).await.unwrap();
    assert_eq!(create(&seen, &[1]).await, CreateOutcome::Created(1));
    assert_eq!(changing_nothing(&fixture, create(&seen, &[2])).await, CreateOutcome::Changed);
    let _: u64 = fixture.redis.cli(&["HDEL", "slots:sums", "0"]).await;
    let now = read(&fixture, "sums").await;
    assert_eq!(create(&now, &[0, 5]).await, CreateOutcome::Created(0), "done, and not one of the job");
    fixture.store.end_job(&named("sums"), Some(("TooBad", "it is"))).await.unwrap();
    let now = read(&fixture, "sums").await;
    assert_eq!(changing_nothing(&fixture, create(&now, &[3])).await, CreateOutcome::Changed);
}

#[tokio::test]
async fn pods_that_ended_uncounted_are_counted_later() {
    let fixture = Fixture::new().await;
    let session = fixture.node("w1").await;
    job(&fixture, json!({"completions": 1})).await;
    let pods = running(&fixture, &session).await;
    let _: u64 = fixture.redis.cli(&["HSET", &format!("pod:{}", pods[0].id), "phase", "succeeded"]).await;
    let ids = [pods[0].id.clone()];
    assert_eq!(fixture.store.count_job_pods(&named("sums"), &ids).await.unwrap(), 1);
    assert!(read(&fixture, "sums").await.progress.is_complete());
    let again = changing_nothing(&fixture, fixture.store.count_job_pods(&named("sums"), &ids)).await;
    assert_eq!(again.unwrap(), 0);
}

#[tokio::test]
async fn what_a_job_runs_does_not_change_and_a_service_stays_what_it_is() {
    let fixture = Fixture::new().await;
    job(&fixture, json!({"completions": 2})).await;
    let put = async |input: Value| {
        let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        fixture.store.put_service(&desired, PutMode::Upsert, None).await.unwrap().0
    };
    let with =
        |image: &str, policy: Value| json!({"kind": "job", "name": "sums", "image": image, "job": policy});
    let same = "spaster/alpine-sleep";
    let other_image = put(with("other", json!({"completions": 2})));
    assert_eq!(changing_nothing(&fixture, other_image).await, PutOutcome::Immutable);
    let more = put(with(same, json!({"completions": 3})));
    assert_eq!(changing_nothing(&fixture, more).await, PutOutcome::Immutable);
    let service = put(json!({"name": "sums", "image": same}));
    assert_eq!(changing_nothing(&fixture, service).await, PutOutcome::OtherKind { kind: Kind::Job });
    assert_eq!(put(with(same, json!({"completions": 2}))).await, PutOutcome::Unchanged { generation: 1 });
    let faster = put(with(same, json!({"completions": 2, "parallelism": 2}))).await;
    assert_eq!(faster, PutOutcome::Scaled { generation: 1 });
    let (store, name) = (&fixture.store, named("sums"));
    let (scaled, _) = changing_nothing(&fixture, store.scale_service(&name, 5)).await.unwrap();
    assert_eq!(scaled, ScaleOutcome::OtherKind { kind: Kind::Job });
    let (restarted, _) = changing_nothing(&fixture, store.restart_service(&name, None)).await.unwrap();
    assert_eq!(restarted, RestartOutcome::OtherKind { kind: Kind::Job });
}

fn tick(at: i64) -> CronTick {
    CronTick { tick: at, ticks: format!("60-{at}"), missed: 0, skipped: None }
}

#[tokio::test]
async fn a_tick_is_taken_once_with_its_job() {
    let fixture = Fixture::new().await;
    let seen = cron(&fixture).await;
    let take = async |cron: &Service, at: i64| {
        let job = named(&format!("night-{at}"));
        fixture.store.take_tick(cron, &job, &tick(at)).await.unwrap()
    };
    assert!(matches!(take(&seen, 120).await, TickOutcome::Taken(_)));
    assert_eq!(changing_nothing(&fixture, take(&seen, 120)).await, TickOutcome::Changed);
    assert_eq!(changing_nothing(&fixture, take(&seen, 180)).await, TickOutcome::Changed);
    let now = read(&fixture, "night").await;
    assert_eq!((now.schedule.ticks_text.as_str(), now.schedule.ticks.last()), ("60-120", Some(120)));
    let job = read(&fixture, "night-120").await;
    assert_eq!((job.kind(), job.replicas, &job.fields.labels), (Kind::Job, 2, &seen.fields.labels));
    assert_eq!(job.progress.of_cron, Some((seen.name.clone(), 120)));
    assert_eq!(fixture.store.runs_of(&seen.name).await.unwrap(), [(job.name.clone(), 120)]);

    let input = json!({
        "kind": "cron", "name": "night", "image": "other", "job": {"completions": 2}, "cron": {"schedule": "* * * * *"},
    });
    fixture.service_of(input).await;
    assert_eq!(changing_nothing(&fixture, take(&now, 180)).await, TickOutcome::Changed);
    let now = read(&fixture, "night").await;
    assert!(matches!(take(&now, 180).await, TickOutcome::Taken(_)));
    assert_eq!(read(&fixture, "night-180").await.pod.image(), "other");
}

#[tokio::test]
async fn a_tick_can_be_skipped_and_one_whose_name_is_taken_creates_nothing() {
    let fixture = Fixture::new().await;
    let seen = cron(&fixture).await;
    let skipped = CronTick { skipped: Some("it still runs".to_owned()), ..tick(120) };
    let outcome = fixture.store.take_tick(&seen, &named("night-120"), &skipped).await.unwrap();
    assert!(matches!(outcome, TickOutcome::Taken(_)));
    assert_eq!(fixture.store.service(&named("night-120")).await.unwrap(), None);
    assert_eq!(fixture.store.unconfirmed_writes().await.unwrap(), 0);
    fixture.service("night-180", 1).await;
    let seen = read(&fixture, "night").await;
    let outcome = fixture.store.take_tick(&seen, &named("night-180"), &tick(180)).await.unwrap();
    assert_eq!(outcome, TickOutcome::NameTaken);
    assert_eq!(read(&fixture, "night").await.schedule.ticks.last(), Some(180));
    assert_eq!(read(&fixture, "night-180").await.kind(), Kind::Service);
}

/// Until then a failover could lose the tick, and its job would run once more.
#[tokio::test]
async fn the_pods_of_a_cron_wait_until_the_replicas_have_its_tick() {
    let fixture = Fixture::new().await;
    let seen = cron(&fixture).await;
    let job = named("night-120");
    fixture.store.take_tick(&seen, &job, &tick(120)).await.unwrap();
    let write: String = fixture.redis.cli(&["HGET", "service:night-120", "write"]).await;
    let now = fixture.store.redis_now().await.unwrap();
    let note = format!("{write} {now} 0");
    let _: u64 = fixture.redis.cli(&["HSET", "unconfirmed", "night-120", &note]).await;
    let create = async || {
        let job = read(&fixture, "night-120").await;
        fixture.store.create_job_pods(&job, &[0]).await.unwrap()
    };
    assert_eq!(changing_nothing(&fixture, create()).await, CreateOutcome::Unconfirmed);
    // Not for ever: a replica may be down.
    let created_at = (now - Duration::from_secs(10).as_millis() as u64).to_string();
    let _: u64 = fixture.redis.cli(&["HSET", "service:night-120", "created_at", &created_at]).await;
    assert_eq!(create().await, CreateOutcome::Created(1));
}

#[tokio::test]
async fn times_count_from_when_they_were_set_and_a_suspended_cron_has_none() {
    let fixture = Fixture::new().await;
    let before = cron(&fixture).await;
    assert!(before.schedule.since > 0);
    let with = |cron: Value| {
        json!({
            "kind": "cron", "name": "night", "image": "spaster/alpine-sleep", "labels": {"team": "a"},
            "job": {"completions": 2}, "cron": cron,
        })
    };
    let since = async |cron: Value| {
        tokio::time::sleep(Duration::from_millis(2)).await;
        fixture.service_of(with(cron)).await;
        read(&fixture, "night").await.schedule.since
    };
    let every_minute = json!({"schedule": "* * * * *", "history": {"failed": 5}});
    assert_eq!(since(every_minute.clone()).await, before.schedule.since, "its times are the same");
    assert!(since(json!({"schedule": "*/2 * * * *"})).await > before.schedule.since);
    assert_eq!(since(json!({"schedule": "*/2 * * * *", "suspend": true})).await, 0);
    assert!(since(every_minute).await > before.schedule.since, "nothing is made up for the suspension");
}

#[tokio::test]
async fn a_forgotten_job_leaves_nothing_and_a_cron_waits_for_its_jobs() {
    let fixture = Fixture::new().await;
    let seen = cron(&fixture).await;
    let job = named("night-120");
    fixture.store.take_tick(&seen, &job, &tick(120)).await.unwrap();
    let store = &fixture.store;
    store.delete_service(&seen.name).await.unwrap();
    let cron = read(&fixture, "night").await;
    assert!(!changing_nothing(&fixture, store.forget_service(&cron)).await.unwrap(), "it has a job");
    store.delete_service(&job).await.unwrap();
    assert!(store.forget_service(&read(&fixture, "night-120").await).await.unwrap());
    assert!(store.forget_service(&cron).await.unwrap());
    let left: Vec<String> = fixture.redis.cli(&["KEYS", "*night*"]).await;
    assert!(left.is_empty(), "{left:?}");
}

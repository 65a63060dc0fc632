//! Jobs: each index completes once, and failures are retried or explained, whichever scheduler dies.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming};
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};

use crate::SOON;

fn writes_index(file: &Path, then: &str) -> Value {
    json!(["/bin/sh", "-c", format!("echo $KUBELEET_JOB_INDEX >> {}; {then}", file.display())])
}

fn starts(file: &Path) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *starts.entry(line.to_owned()).or_default() += 1;
    }
    starts
}

async fn until(http: &Http, name: &str, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let service = http.get(&format!("/service/{name}")).await;
        if is_reached(&service) {
            return service;
        }
        check(Instant::now() < deadline, || format!("{what}: {service}")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_in(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |service| service["job_status"]["phase"] == phase
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_each_of_its_indices_once_a_few_at_a_time() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let _schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": writes_index(&file, "sleep 0.3; echo done"),
        "job": {"completions": 10, "parallelism": 3},
    });
    let created = http.post("/service", &job).await;
    assert_eq!(created["job_status"]["phase"], "running");
    let complete = until(&http, "sums", "it is complete", |service| {
        let status = &service["job_status"];
        assert!(status["active"].as_u64().unwrap() <= 3, "more than three at a time: {status}");
        is_in("complete")(service)
    })
    .await;
    assert_eq!(complete["job_status"]["succeeded"], 10);
    assert_eq!(complete["status"]["summary"], "complete");
    let expected: BTreeMap<String, usize> = (0..10).map(|index: u32| (index.to_string(), 1)).collect();
    assert_eq!(starts(&file), expected);
    let results = http.get("/service/sums/results").await;
    let results = results["items"].as_array().unwrap();
    assert_eq!(results.len(), 10);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_eq!((&result["succeeded"], &result["attempts"]), (&json!(true), &json!(1)));
        assert_eq!((&result["exit_code"], &result["last_output"]), (&json!(0), &json!("done")), "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_too_often_fails_and_says_why() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let then = "[ $KUBELEET_JOB_INDEX = 0 ] && exec sleep 86400; echo no database; exit 3";
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": writes_index(&file, then), "stop_grace_period": 0,
        "job": {"completions": 3, "parallelism": 2, "backoff_limit": 2, "backoff": "100ms"},
    });
    http.post("/service", &job).await;
    let failed = until(&http, "sums", "it has failed", is_in("failed")).await;
    let status = &failed["job_status"];
    assert_eq!((&status["reason"], &status["failures"]), (&json!("BackoffLimitExceeded"), &json!(3)));
    let why = status["message"].as_str().unwrap();
    assert!(why.contains("backoff_limit is 2") && why.contains("\"no database\""), "{why}");
    until(&http, "sums", "its pods are stopped", |service| service["job_status"]["active"] == 0).await;
    assert_eq!(starts(&file).get("0"), Some(&1));
    let changed =
        json!({"kind": "job", "name": "sums", "image": "none", "command": ["true"], "job": job["job"]});
    let (status, problem) = http.send(reqwest::Method::PUT, "/service/sums", Some(&changed)).await;
    assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("/problems/job-immutable")));
    let (status, problem) =
        http.send(reqwest::Method::POST, "/service/sums/scale", Some(&json!({"replicas": 3}))).await;
    assert_eq!((status.as_u16(), &problem["type"]), (409, &json!("/problems/wrong-kind")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_ends_at_its_deadline_and_is_forgotten_after_its_ttl() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let _scheduler = cluster.scheduler_named("s1");
    let _worker = cluster.worker("w1", "process");
    let http = api.http();
    http.nodes_ready(1).await;
    let job = json!({
        "kind": "job", "name": "sums", "image": "none", "command": ["/bin/sleep", "86400"], "stop_grace_period": 0,
        "job": {"deadline": "1s", "ttl": "2s"},
    });
    http.post("/service", &job).await;
    let failed = until(&http, "sums", "it has failed", is_in("failed")).await;
    assert_eq!(failed["job_status"]["reason"], "DeadlineExceeded");
    eventually_within(SOON, "it is forgotten", || async {
        let (status, body) = http.send(reqwest::Method::GET, "/service/sums", None).await;
        check(status.as_u16() == 404, || body.to_string())
    })
    .await;
    let left: Vec<String> = cluster.redis.cli(&["KEYS", "*sums*"]).await;
    assert!(left.is_empty(), "{left:?}");
}

/// `KUBELEET_TICKS` sets the number.
#[tokio::test(flavor = "multi_thread")]
async fn a_cron_runs_each_of_its_times_once_whichever_scheduler_dies() {
    let _lock = beside_others().await;
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let mut schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let ticks: usize = std::env::var("KUBELEET_TICKS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let cron = json!({
        "kind": "cron", "name": "pulse", "image": "none",
        "command": ["/bin/sh", "-c", format!("echo $PWD >> {}", file.display())],
        "cron": {"schedule": "* * * * * *", "history": {"successful": 1000, "failed": 1000}},
    });
    let created = http.post("/service", &cron).await;
    assert_eq!((&created["status"]["summary"], &created["replicas"]), (&json!("scheduled"), &json!(0)));
    let deadline = Instant::now() + SOON + Duration::from_secs(3 * ticks as u64);
    let mut kills = 0;
    loop {
        let jobs = http.get("/service/pulse").await["cron_status"]["jobs"].as_u64().unwrap();
        if jobs as usize >= ticks {
            break;
        }
        if jobs as usize / 3 > kills {
            schedulers[kills % 2].kill();
            tokio::time::sleep(Duration::from_millis(137 * (kills as u64 % 7))).await;
            schedulers[kills % 2].start_again();
            kills += 1;
        }
        check(Instant::now() < deadline, || format!("{jobs} of {ticks} jobs after {kills} kills")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let suspended = json!({"cron": {"suspend": true}});
    let (status, body) = http.send(reqwest::Method::PATCH, "/service/pulse", Some(&suspended)).await;
    assert!(status.is_success(), "{body}");
    assert_eq!(body["status"]["summary"], "suspended");
    let is_over = |service: &Value| service["cron_status"]["active"] == json!([]);
    until(&http, "pulse", "all its jobs have ended", is_over).await;
    let jobs: Vec<(String, i64)> = {
        let flat: Vec<(String, i64)> =
            cluster.redis.cli(&["ZRANGE", "runs:pulse", "0", "-1", "WITHSCORES"]).await;
        flat
    };
    for pair in jobs.windows(2) {
        assert_eq!(pair[0].1 + 1, pair[1].1, "a tick is missing between {} and {}", pair[0].0, pair[1].0);
    }
    let starts = starts(&file);
    for (job, tick) in &jobs {
        assert_eq!(*job, format!("pulse-{tick}"));
        let ran: usize =
            starts.iter().filter(|(folder, _)| folder.contains(job.as_str())).map(|(_, count)| count).sum();
        assert_eq!(ran, 1, "{job} in {starts:?}");
    }
    assert_eq!(starts.len(), jobs.len(), "{starts:?}");
    assert!(kills >= ticks / 4, "{kills} kills");

    let by_hand = http.post("/service/pulse/run?job=pulse-by-hand", &Value::Null).await;
    assert_eq!(
        (&by_hand["name"], &by_hand["job_status"]["cron"]),
        (&json!("pulse-by-hand"), &json!("pulse"))
    );
    until(&http, "pulse-by-hand", "it is complete", is_in("complete")).await;
    let (status, _) = http.send(reqwest::Method::POST, "/service/pulse/run?job=pulse-by-hand", None).await;
    assert_eq!(status.as_u16(), 409, "it is not created twice");

    let few = json!({"cron": {"history": {"successful": 2}}});
    let (status, body) = http.send(reqwest::Method::PATCH, "/service/pulse", Some(&few)).await;
    assert!(status.is_success(), "{body}");
    until(&http, "pulse", "two jobs are kept", |service| service["cron_status"]["jobs"] == 2).await;
    let (status, body) = http.send(reqwest::Method::DELETE, "/service/pulse", None).await;
    assert!(status.is_success(), "{body}");
    eventually_within(SOON, "all is forgotten", || async {
        let left = http.get("/service").await;
        check(left["items"] == json!([]), || left.to_string())
    })
    .await;
    let left: Vec<String> = cluster.redis.cli(&["KEYS", "*pulse*"]).await;
    assert!(left.is_empty(), "{left:?}");
}

/// `KUBELEET_CRONS` and `KUBELEET_CRON_TICKS` set the numbers of crons and times.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "its figures")]
async fn many_crons_run_each_of_their_times_once_whichever_scheduler_dies() {
    let _lock = beside_others().await;
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (crons, ticks) = (number("KUBELEET_CRONS", 10), number("KUBELEET_CRON_TICKS", 5));
    let cluster = Cluster::new(ClusterTiming::Default).await;
    let api = cluster.api().await;
    let mut schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let _workers = ["w1", "w2"].map(|short| cluster.worker(short, "process"));
    let http = api.http();
    http.nodes_ready(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let names: Vec<String> = (0..crons).map(|cron| format!("pulse{cron}")).collect();
    let mut cron = json!({
        "kind": "cron", "name": "", "image": "none",
        "command": ["/bin/sh", "-c", format!("echo $PWD >> {}", file.display())],
        "cron": {"schedule": "*/2 * * * * *", "history": {"successful": 1000, "failed": 1000}},
    });
    for name in &names {
        cron["name"] = json!(name);
        http.post("/service", &cron).await;
    }
    let begun = Instant::now();
    let fewest = async || {
        let mut fewest = usize::MAX;
        for name in &names {
            let jobs: usize = cluster.redis.cli(&["ZCARD", &format!("runs:{name}")]).await;
            fewest = fewest.min(jobs);
        }
        fewest
    };
    let (mut kills, mut kills_without_one, mut last, mut last_at) = (0, 0_u32, 0, Instant::now());
    loop {
        let jobs = fewest().await;
        if jobs >= ticks {
            break;
        }
        if jobs > last {
            (kills_without_one, last, last_at) = (0, jobs, Instant::now());
        }
        check(last_at.elapsed() < SOON, || format!("{jobs} of {ticks} times after {kills} kills")).unwrap();
        schedulers[kills % 2].kill();
        tokio::time::sleep(Duration::from_millis(137 * (kills as u64 % 7))).await;
        schedulers[kills % 2].start_again();
        kills += 1;
        kills_without_one += 1;
        // On a slow machine a scheduler needs longer for its first step.
        tokio::time::sleep(Duration::from_millis(1500) * kills_without_one.div_ceil(4)).await;
    }
    for name in &names {
        let suspended = json!({"cron": {"suspend": true}});
        let (status, body) =
            http.send(reqwest::Method::PATCH, &format!("/service/{name}"), Some(&suspended)).await;
        assert!(status.is_success(), "{body}");
    }
    let mut jobs_of_all = BTreeMap::new();
    for name in &names {
        until(&http, name, "all its jobs have ended", |service| {
            service["cron_status"]["active"] == json!([])
        })
        .await;
        let jobs: Vec<(String, i64)> =
            cluster.redis.cli(&["ZRANGE", &format!("runs:{name}"), "0", "-1", "WITHSCORES"]).await;
        for pair in jobs.windows(2) {
            assert_eq!(pair[0].1 + 2, pair[1].1, "a time is missing between {} and {}", pair[0].0, pair[1].0);
        }
        jobs_of_all.extend(jobs.into_iter().map(|(job, _)| (job, 0)));
    }
    for (folder, count) in starts(&file) {
        let container = folder.split('/').find(|part| part.starts_with("pulse")).unwrap();
        let job: Vec<&str> = container.splitn(3, '-').take(2).collect();
        let ran = jobs_of_all.entry(job.join("-")).or_insert(1_000);
        *ran += count;
    }
    let all = jobs_of_all.len();
    jobs_of_all.retain(|_, ran| *ran != 1);
    for job in jobs_of_all.keys().take(2) {
        let events: Vec<(String, Vec<String>)> =
            cluster.redis.cli(&["XREVRANGE", "events", "+", "-", "COUNT", "60000"]).await;
        for (id, fields) in events.iter().rev() {
            let text = fields.join(" ");
            if text.contains(job.as_str()) || text.contains("Node") || text.contains("Reclaim") {
                println!("{id} {text}");
            }
        }
    }
    assert!(
        jobs_of_all.is_empty(),
        "each job has run, and once; 1,000 more if it is in no list: {jobs_of_all:?}"
    );
    println!(
        "{all} jobs of {crons} crons, each once, in {:?} with {kills} schedulers killed",
        begun.elapsed()
    );
}

/// `KUBELEET_JOBS` sets the number.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "its figures")]
async fn many_jobs_have_each_result_once_whatever_is_killed() {
    const COMPLETIONS: u64 = 10;
    let _lock = beside_others().await;
    let jobs: u64 = std::env::var("KUBELEET_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let api = cluster.api().await;
    let mut schedulers = [cluster.scheduler_named("s1"), cluster.scheduler_named("s2")];
    let mut workers = ["w1", "w2", "w3"].map(|short| cluster.worker(short, "sim"));
    let http = api.http();
    http.nodes_ready(3).await;
    let started = Instant::now();
    let mut job = json!({
        "kind": "job", "name": "", "image": "done-or-not", "stop_grace_period": 0,
        "job": {"completions": COMPLETIONS, "parallelism": 5, "backoff": "100ms", "backoff_limit": 1000},
    });
    for number in 0..jobs {
        job["name"] = json!(format!("job-{number}"));
        http.post("/service", &job).await;
    }
    let (mut kills, mut killed_at, mut last, mut last_at) = (0, Instant::now(), usize::MAX, Instant::now());
    let list = || async { http.get("/service?limit=10000").await["items"].as_array().unwrap().clone() };
    loop {
        let running = list().await.iter().filter(|job| !is_in("complete")(job)).count();
        if running == 0 {
            break;
        }
        if running < last {
            (last, last_at) = (running, Instant::now());
        }
        if killed_at.elapsed() > Duration::from_secs(2) {
            match kills % 3 {
                0 | 1 => schedulers[kills % 2].start_again(),
                _ => workers[kills / 3 % 3].start_again(),
            }
            (kills, killed_at) = (kills + 1, Instant::now());
        }
        check(last_at.elapsed() < SOON, || format!("{running} of {jobs} jobs run after {kills} kills"))
            .unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let took = started.elapsed();
    let mut attempts = 0;
    for number in 0..jobs {
        let results = http.get(&format!("/service/job-{number}/results")).await;
        let results = results["items"].as_array().unwrap().clone();
        assert_eq!(results.len() as u64, COMPLETIONS, "{results:?}");
        assert!(results.iter().all(|result| result["succeeded"] == true), "{results:?}");
        attempts += results.iter().map(|result| result["attempts"].as_u64().unwrap()).sum::<u64>();
    }
    let completed: u64 =
        list().await.iter().map(|job| job["job_status"]["succeeded"].as_u64().unwrap()).sum();
    assert_eq!(completed, jobs * COMPLETIONS);
    println!("{jobs} jobs, {completed} results of {attempts} ended pods, {kills} kills, {took:?}");
}

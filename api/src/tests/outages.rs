//! A Redis that answers but refuses.

use std::time::Duration;

use testkit::{Redis, eventually, need_redis};

use super::{Api, app, call};
use crate::cluster::redis_watch::WriteOutage;
use crate::router::router;

const ALL: &str = "~* &* +@all -@admin -@dangerous +info +role +script|load +script|exists";

async fn set_user(redis: &Redis, rules: &str) {
    let words: Vec<&str> =
        ["ACL", "SETUSER", "kl", "reset", "on", ">pw"].into_iter().chain(rules.split(' ')).collect();
    redis.cli::<()>(&words).await;
}

#[tokio::test]
async fn changes_that_redis_has_lost_are_named_in_the_status() {
    let Some(api) = Api::start() else { return };
    let watch = &api.app.redis_watch;
    api.post("/service", r#"{"name":"a","image":"nginx"}"#).await.expect(201);
    watch.follow_events().await.unwrap();
    api.post("/service", r#"{"name":"late","image":"nginx"}"#).await.expect(201);
    api.send("PUT", "/service/a", &[], r#"{"name":"a","image":"nginx:2"}"#).await.expect(200);
    watch.follow_events().await.unwrap();
    let events: Vec<(String, Vec<String>)> = api.redis.cli(&["XRANGE", "events", "-", "+"]).await;
    let is_late = |fields: &[String]| fields.iter().any(|field| field == "late");
    let first = events.iter().position(|(_, fields)| is_late(fields)).unwrap();
    for (id, _) in &events[first..] {
        let _: u64 = api.redis.cli(&["XDEL", "events", id]).await;
    }
    watch.follow_events().await.unwrap();
    let status = api.get("/status").await.json();
    let said = status["problems"][0].as_str().unwrap();
    assert!(said.starts_with("Redis went back to an older state, that of "), "{said}");
    assert!(said.contains("are lost: a (generation 2") && said.contains("late ("), "{said}");
}

#[tokio::test]
async fn every_refusal_is_said_with_its_cause_and_the_line_that_mends_it() {
    need_redis!();
    let redis = Redis::start().await;
    let port = redis.port();
    // URL, rules of its user, whether the link is connected, cause in metrics, and words of the message.
    let user = format!("redis://kl:pw@127.0.0.1:{port}");
    let table = [
        (user.clone(), ALL, None, ""),
        (format!("{user}/3"), ALL, None, ""),
        (user.clone(), "~* &* +@all -info", Some("noperm"), "ACL SETUSER"),
        (user.clone(), "~* &* +@all -role", Some("noperm"), "+role`"),
        (user.clone(), "~* &* +@all -evalsha", Some("noperm"), "+evalsha`"),
        (user.clone(), "~* resetchannels +@all", Some("noperm"), "`ACL SETUSER USER &*`"),
        (format!("redis://kl:wrong@127.0.0.1:{port}"), ALL, Some("wrongpass"), "ACL SETUSER"),
        (format!("{user}/99"), ALL, Some("database"), "use /0"),
    ];
    for (url, rules, cause, words) in table {
        set_user(&redis, rules).await;
        let app = app(&url, &[]);
        let router = router(app.clone());
        let get = async |path: &str| call(&router, "GET", path, &[], "").await;
        let ready = get("/readyz").await;
        let status = get("/status").await.expect(200);
        let metrics = get("/metrics").await.text;
        let Some(cause) = cause else {
            assert_eq!(
                (ready.status, &status["redis"]["writable"]),
                (200, &true.into()),
                "{rules}: {ready:?}"
            );
            assert!(metrics.contains("kubeleet_redis_writable 1\n"), "{metrics}");
            assert!(
                status["redis"]["server"].as_str().unwrap().contains(' '),
                "product and version: {status}"
            );
            continue;
        };
        let problem = ready.problem(503, "redis-unavailable");
        assert!(problem["errors"][0]["detail"].as_str().unwrap().contains(words), "{rules}: {problem}");
        assert_eq!(status["redis"]["writable"], false, "{rules}: {status}");
        assert!(status["problems"][0].as_str().unwrap().contains(words), "{rules}: {status}");
        for part in
            ["kubeleet_redis_writable 0".to_owned(), format!("kubeleet_redis_refusal{{cause=\"{cause}\"}} 1")]
        {
            assert!(metrics.contains(&part), "{rules}: {part} is missing:\n{metrics}");
        }
        let body = r#"{"name":"web","image":"nginx"}"#;
        // Without INFO only storing a service works.
        let posted = call(&router, "POST", "/service", &[], body).await;
        assert!([201, 202, 409, 503].contains(&posted.status), "{rules}: {posted:?}");
    }
}

#[tokio::test]
async fn a_refusal_without_a_known_cause_has_its_own_series() {
    need_redis!();
    let redis = Redis::start_with(&["--rename-command", "EVALSHA", "EVALSHA-OFF"]).await;
    let router = router(app(&redis.url(), &[]));
    let metrics = call(&router, "GET", "/metrics", &[], "").await.text;
    for part in ["kubeleet_redis_writable 0\n", "kubeleet_redis_refusal{cause=\"other\"} 1\n"] {
        assert!(metrics.contains(part), "{part} is missing:\n{metrics}");
    }
}

#[tokio::test]
async fn a_login_that_is_missing_is_said() {
    need_redis!();
    let redis = Redis::start_with(&["--requirepass", "x"]).await;
    let router = router(app(&format!("redis://127.0.0.1:{}", redis.port()), &[]));
    let status = call(&router, "GET", "/status", &[], "").await.expect(200);
    assert_eq!(status["redis"]["connected"], false, "{status}");
    assert!(status["problems"][0].as_str().unwrap().contains("redis://USER:PASSWORD@HOST"), "{status}");
}

#[tokio::test]
async fn a_cluster_of_shards_is_said_and_nobody_is_sent_to_start_a_scheduler() {
    need_redis!();
    let redis = Redis::start_with(&["--cluster-enabled", "yes"]).await;
    redis.cli::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let router = router(app(&redis.url(), &[]));
    eventually("the shards serve, and are refused", async || {
        let status = call(&router, "GET", "/status", &[], "").await.expect(200);
        let problems = status["problems"].to_string();
        assert!(!problems.contains("start `kubeleet"), "{problems}");
        let is_said = problems.contains("cluster of shards") && status["redis"]["writable"] == false;
        is_said.then(|| call(&router, "GET", "/readyz", &[], ""))
    })
    .await
    .await
    .problem(503, "redis-unavailable");
}

#[tokio::test]
async fn writes_without_replicas_are_refused_with_the_addresses_that_are_away() {
    need_redis!();
    let (master, replica) = (Redis::start().await, Redis::start().await);
    replica.replicate_from(&master).await;
    let app = app(&master.url(), &[]);
    let router = router(app.clone());
    eventually("the replica is attached", async || {
        let condition = app.redis_watch.condition().await;
        (condition.redundancy.attached.len() == 1).then_some(())
    })
    .await;
    master.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "3"]).await;
    eventually("the reserve is missed", async || {
        let status = call(&router, "GET", "/status", &[], "").await.expect(200);
        assert_eq!(status["redundancy"]["replicas_attached"], 1, "{status}");
        status["problems"].to_string().contains("the loss of one stops all writes").then_some(())
    })
    .await;
    let address = format!("127.0.0.1:{}", replica.port());
    replica.kill();
    let outage: WriteOutage = eventually("writes are refused", async || app.redis_watch.outage().await).await;
    assert_eq!(outage.cause, "noreplicas");
    assert!(outage.text.contains("CONFIG SET min-replicas-to-write 0"), "{outage:?}");
    let status = call(&router, "GET", "/status", &[], "").await.expect(200);
    let problems: Vec<String> = serde_json::from_value(status["problems"].clone()).unwrap();
    assert!(problems[0].starts_with("Redis takes no writes, since "), "{problems:?}");
    assert!(problems[0].contains(&address), "{problems:?}");
    assert!(!problems.iter().any(|problem| problem.contains("start `kubeleet")), "{problems:?}");
    assert_eq!((&status["redis"]["connected"], &status["redis"]["writable"]), (&true.into(), &false.into()));

    master.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    eventually("it takes writes again", async || app.redis_watch.outage().await.is_none().then_some(()))
        .await;
    let problems = call(&router, "GET", "/status", &[], "").await.expect(200)["problems"].to_string();
    assert!(problems.contains(&address), "the replica is still missed: {problems}");
}

#[tokio::test]
async fn a_pause_of_writes_is_seen_within_seconds_and_reads_go_on() {
    need_redis!();
    let redis = Redis::start().await;
    let app = app(&redis.url(), &[]);
    let router = router(app.clone());
    assert!(app.redis_watch.outage().await.is_none());
    redis.cli::<()>(&["CLIENT", "PAUSE", "20000", "WRITE"]).await;
    let started = std::time::Instant::now();
    let outage = eventually("the pause is seen", async || app.redis_watch.outage().await).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(outage.cause, "paused");
    let status = call(&router, "GET", "/status", &[], "").await.expect(200);
    assert!(status["problems"][0].as_str().unwrap().contains("CLIENT UNPAUSE"), "{status}");
    redis.cli::<()>(&["CLIENT", "UNPAUSE"]).await;
    eventually("writes go on", async || app.redis_watch.outage().await.is_none().then_some(())).await;
}

#[tokio::test]
async fn an_append_only_file_that_is_switched_off_is_missed() {
    need_redis!();
    let redis = Redis::start_with(&["--appendonly", "yes"]).await;
    let app = app(&redis.url(), &[]);
    let router = router(app.clone());
    let problems =
        async || call(&router, "GET", "/status", &[], "").await.expect(200)["problems"].to_string();
    assert!(!problems().await.contains("append-only"), "it is written");
    redis.cli::<()>(&["CONFIG", "SET", "appendonly", "no"]).await;
    eventually("it is missed", async || problems().await.contains("CONFIG SET appendonly yes").then_some(()))
        .await;
    redis.cli::<()>(&["HDEL", "meta", "appendonly"]).await;
    eventually("it is meant", async || (!problems().await.contains("append-only")).then_some(())).await;
}

#[tokio::test]
async fn at_maxmemory_the_probe_goes_on() {
    need_redis!();
    let redis = Redis::start().await;
    let app = app(&redis.url(), &[]);
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(app.redis_watch.outage().await, None, "what keeps alive or frees goes on");
}

#[tokio::test]
async fn a_service_whose_record_is_gone_is_a_problem() {
    let Some(api) = super::Api::start() else { return };
    api.post("/service", r#"{"name":"web","image":"nginx","replica":2}"#).await.expect(201);
    eventually("its pods are created", async || {
        let pods = api.get("/pod").await.expect(200);
        (pods["items"].as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    api.redis.cli::<()>(&["RENAME", "service:web", "x"]).await;
    eventually("it is missed", async || {
        api.app.pod_counts.forget();
        let problems = api.get("/status").await.expect(200)["problems"].to_string();
        problems
            .contains("the service web has no record (service:web in Redis), and its 2 pods run on")
            .then_some(())
    })
    .await;
}

//! The event stream.

use std::time::Duration;

use axum::Router;
use axum::body::BodyDataStream;
use futures_util::StreamExt;
use tower::ServiceExt;

use super::{Api, LIMIT, eventually, request};

struct EventClient {
    body: BodyDataStream,
    text: String,
}

impl EventClient {
    async fn open(router: &Router, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = router.clone().oneshot(request("GET", path, headers, "")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// As (id, reason, data).
    async fn next(&mut self) -> Option<(String, String, serde_json::Value)> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let frame = frame.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| {
                    let line = frame.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start().to_owned())
                };
                match field("data:") {
                    Some(data) => {
                        let data = serde_json::from_str(&data).unwrap();
                        return Some((field("id:").unwrap(), field("event:").unwrap(), data));
                    }
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(LIMIT, self.body.next()).await.expect("an event in time")?;
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    }

    async fn objects(&mut self, count: usize) -> Vec<String> {
        let mut objects = Vec::new();
        for _ in 0..count {
            objects.push(self.next().await.expect("one more").2["object"].as_str().unwrap().to_owned());
        }
        objects
    }
}

fn emit(api: &Api, object: &str) {
    api.redis.blocking_cli::<()>(&[
        "XADD", "events", "*", "kind", "node", "object", object, "reason", "Test", "message", "m",
    ]);
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn run_feed(api: &Api) -> tokio::task::JoinHandle<()> {
    let feed = api.app.feed.clone();
    tokio::spawn(async move { feed.run().await })
}

#[tokio::test]
async fn a_stream_has_only_new_events() {
    let Some(api) = Api::start() else { return };
    let _reader = run_feed(&api);
    emit(&api, "old");
    let mut client = EventClient::open(&api.router, "/event", &[]).await;
    api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
    let (id, reason, data) = client.next().await.unwrap();
    assert_eq!(
        (reason.as_str(), &data["object"], &data["kind"]),
        ("ServiceCreated", &"web".into(), &"service".into())
    );
    assert_eq!(data["id"], id.as_str());
    assert_eq!(client.next().await.unwrap().1, "PodCreated");
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_id() {
    let Some(api) = Api::start() else { return };
    let _reader = run_feed(&api);
    numbers(0..10).iter().for_each(|n| emit(&api, n));
    let mut client = EventClient::open(&api.router, "/event?tail=4", &[]).await;
    assert_eq!(client.objects(2).await, numbers(6..8));
    let (id, _, _) = client.next().await.unwrap();
    drop(client);
    numbers(10..12).iter().for_each(|n| emit(&api, n));
    let mut again = EventClient::open(&api.router, "/event?since=0", &[("last-event-id", &id)]).await;
    numbers(12..14).iter().for_each(|n| emit(&api, n));
    assert_eq!(again.objects(5).await, numbers(9..14));
    let mut all = EventClient::open(&api.router, "/event?since=0", &[]).await;
    assert_eq!(all.objects(14).await, numbers(0..14));
    let mut more = EventClient::open(&api.router, "/event?tail=100", &[]).await;
    assert_eq!(more.objects(14).await, numbers(0..14));
}

#[tokio::test]
async fn no_event_is_missed_or_delivered_twice() {
    let Some(api) = Api::start() else { return };
    let _reader = run_feed(&api);
    let mut slow = EventClient::open(&api.router, "/event?since=0", &[]).await;
    let mut quick = EventClient::open(&api.router, "/event?since=0", &[]).await;
    let objects = numbers(0..4000);
    for (n, object) in objects.iter().enumerate() {
        emit(&api, object);
        if n % 1000 == 500 {
            assert_eq!(quick.next().await.unwrap().2["object"], objects[n / 1000].as_str());
        }
    }
    assert_eq!(slow.objects(4000).await, objects);
    assert_eq!(quick.objects(3996).await, objects[4..]);
}

#[tokio::test]
async fn follow_false_lists_events() {
    let Some(api) = Api::start() else { return };
    numbers(0..5).iter().for_each(|n| emit(&api, n));
    let objects = |list: &serde_json::Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|e| e["object"].as_str().unwrap().to_owned()).collect()
    };
    let last = api.get("/event?follow=false&tail=2").await.expect(200);
    assert_eq!(objects(&last), numbers(3..5));
    let accept = [("accept", "application/json")];
    assert_eq!(objects(&api.send("GET", "/event", &accept, "").await.expect(200)), numbers(0..5));
    let page = api.get("/event?follow=false&limit=3").await.expect(200);
    let next = page["next"].as_str().unwrap();
    let rest = api.get(&format!("/event?follow=false&limit=3&after={next}")).await.expect(200);
    assert_eq!((objects(&rest), rest.get("next")), (numbers(3..5), None));
    for bad in ["since=x", "since=1-2-3", "tail=x", "since=(1", "follow=maybe"] {
        api.get(&format!("/event?{bad}")).await.problem(400, "invalid-query");
    }
    let bad = [("last-event-id", "+")];
    api.send("GET", "/event?follow=false", &bad, "").await.problem(400, "invalid-query");
}

#[tokio::test]
async fn streams_survive_an_outage_of_redis_and_end_at_shutdown() {
    let Some(api) = Api::start() else { return };
    let _reader = run_feed(&api);
    let mut client = EventClient::open(&api.router, "/event", &[]).await;
    emit(&api, "before");
    assert_eq!(client.objects(1).await, ["before"]);
    api.redis.kill();
    tokio::time::sleep(Duration::from_millis(100)).await;
    api.redis.restart().await;
    emit(&api, "after");
    assert_eq!(client.objects(1).await, ["after"]);
    api.app.shutdown.cancel();
    assert!(client.next().await.is_none());
    eventually("the reader ends", || async { _reader.is_finished() }).await;
}

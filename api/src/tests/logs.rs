//! Logs of pods, with a fake worker.

use axum::body::Bytes;
use model::ids::NodeName;
use model::stream::channel::Frame;
use store::{Channel, LogRequest, NodeQuestion, Store};

use super::{Api, eventually};

fn running_pod(api: &Api) {
    api.redis.blocking_cli::<()>(&[
        "HSET",
        "pod:mine",
        "name",
        "test",
        "phase",
        "running",
        "replica",
        "0",
        "image",
        "x",
        "generation",
        "0",
        "node",
        "worker1",
        "assignment",
        "as1",
        "created_at",
        "1",
        "since",
        "1",
        "cpu",
        "0",
        "memory",
        "0",
        "attempts",
        "0",
        "restarts",
        "0",
    ]);
}

async fn next_request(store: &Store) -> (LogRequest, Channel) {
    let node = NodeName::new("worker1").unwrap();
    let found = std::cell::RefCell::new(None);
    eventually("a request for a log", || async {
        let request = store.take_requests(&node).await.unwrap().pop();
        let came = request.is_some();
        *found.borrow_mut() = request;
        came
    })
    .await;
    let request = found.into_inner().unwrap();
    let channel = store.accept_channel(&request).await.unwrap().unwrap();
    match request.question {
        NodeQuestion::Output(request) => (request, channel),
        other => panic!("{other:?}"),
    }
}

fn output(text: &'static str) -> Frame {
    Frame::Output(Bytes::from_static(text.as_bytes()))
}

#[tokio::test]
async fn a_log_is_read_to_its_end() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    let worker = async {
        let (request, mut channel) = next_request(&api.app.store).await;
        assert_eq!((request.pod.as_str(), request.tail, request.follow), ("mine", 5, false));
        for frame in [output("one\ntwo\n"), output("three\n"), Frame::Exit(0)] {
            channel.writer.send(frame).await.unwrap();
        }
        channel
    };
    let (answer, _channel) = tokio::join!(api.get("/pod/mine/log?tail=5"), worker);
    assert_eq!((answer.status, answer.text.as_str()), (200, "one\ntwo\nthree\n"));
    assert!(answer.header("content-type").starts_with("text/plain"));
    eventually("the worker learns that the reader is gone", || async {
        api.redis.blocking_cli::<Vec<String>>(&["KEYS", "xs:*"]).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_worker_learns_that_the_reader_of_a_log_has_left() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    let worker = async {
        let (_request, mut channel) = next_request(&api.app.store).await;
        channel.writer.send(output("one\n")).await.unwrap();
        channel
    };
    let reader =
        tokio::time::timeout(std::time::Duration::from_secs(3), api.get("/pod/mine/log?follow=true"));
    let (answer, mut channel) = tokio::join!(reader, worker);
    assert!(answer.is_err(), "it is followed");
    assert_eq!(channel.reader.next().await.unwrap().0, Frame::Closed);
}

#[tokio::test]
async fn a_followed_log_ends_with_the_reason() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    let worker = async {
        let (request, mut channel) = next_request(&api.app.store).await;
        assert!(request.follow);
        // Longer than the response waits for a first chunk.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        for frame in [output("late\n"), Frame::Failed("the container is gone".to_owned())] {
            channel.writer.send(frame).await.unwrap();
        }
        channel
    };
    let (answer, _channel) = tokio::join!(api.get("/pod/mine/log?follow=true"), worker);
    assert_eq!((answer.status, answer.text.as_str()), (200, "late\n\nkubeleet: the container is gone\n"));
}

#[tokio::test]
async fn a_followed_log_says_where_a_part_may_be_missing() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    let worker = async {
        let (request, mut first) = next_request(&api.app.store).await;
        assert_eq!(request.tail, 100);
        first.writer.finish(output("one\n")).await.unwrap();
        let keys = api.redis.blocking_cli::<Vec<String>>(&["KEYS", "xo:*"]);
        // An entry after missing ones, as after a failover.
        api.redis.blocking_cli::<String>(&["XADD", &keys[0], "99-0", "f", "x"]);
        let (request, mut second) = next_request(&api.app.store).await;
        assert_eq!(request.tail, 0, "lines are not sent twice");
        for frame in [output("three\n"), Frame::Exit(0)] {
            second.writer.send(frame).await.unwrap();
        }
        (first, second)
    };
    let (answer, _channels) = tokio::join!(api.get("/pod/mine/log?follow=true"), worker);
    let expected = "one\n\nkubeleet: a part of the output may be missing\nthree\n";
    assert_eq!((answer.status, answer.text.as_str()), (200, expected));
}

#[tokio::test]
async fn an_unreadable_log_is_a_problem() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    let worker = async {
        let (_request, mut channel) = next_request(&api.app.store).await;
        channel.writer.send(Frame::Failed("no such container".into())).await.unwrap();
        channel
    };
    let (answer, _channel) = tokio::join!(api.get("/pod/mine/log"), worker);
    let problem = answer.problem(502, "log-unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("no such container"), "{problem}");
    api.post("/service", r#"{"name":"web","image":"nginx"}"#).await.expect(201);
    let pods = api.get("/pod?service=web").await.expect(200);
    let uuid = pods["items"][0]["uuid"].as_str().unwrap();
    api.get(&format!("/pod/{uuid}/log")).await.problem(409, "pod-on-no-node");
    api.get("/pod/none/log").await.problem(404, "pod-not-found");
    api.get("/pod/mine/log?tail=x").await.problem(400, "invalid-query");
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_a_504() {
    let Some(api) = Api::start() else { return };
    running_pod(&api);
    api.get("/pod/mine/log").await.problem(504, "node-silent");
}

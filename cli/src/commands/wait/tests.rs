//! `--wait` with a fake API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api_types::ServiceStatus;
use client::Client;
use model::ids::PodId;
use model::pod::lifecycle::Phase;
use testkit::api_fixtures as fixtures;
use testkit::fake_api::{FakeApi, ok_json, problem};
use tokio::time::Instant;

use super::hints::Hints;
use super::*;
use crate::exit::Exit;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn ready() -> Goal {
    Goal::Ready { service: "web".to_owned(), generation: 1 }
}

async fn wait(
    goal: Goal,
    timeout: Duration,
    respond: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Exit {
    let polls = AtomicUsize::new(0);
    let api = FakeApi::start(move |request| {
        // Waiting works without events.
        match request.starts_with("GET /event") {
            true => problem(503),
            false => respond(polls.fetch_add(1, Ordering::SeqCst)),
        }
    })
    .await;
    Waiter::new(Client::new(&api.address, None).unwrap(), timeout).wait_for(goal).await
}

fn web(change: impl FnOnce(&mut ServiceStatus)) -> String {
    let mut service = fixtures::service("web");
    change(&mut service.status);
    ok_json(&service)
}

#[tokio::test]
async fn waiting_survives_a_transient_error_of_the_api() {
    let respond = |poll| match poll {
        0 => web(|s| (s.running, s.updated, s.assigned) = (2, 2, 1)),
        1 => problem(503),
        _ => web(|_| {}),
    };
    assert_eq!(wait(ready(), LONG, respond).await, Exit::Ok);
}

#[tokio::test]
async fn at_the_deadline_the_exit_code_says_why() {
    let starting = |_| web(|s| (s.running, s.updated, s.assigned) = (2, 2, 1));
    assert_eq!(wait(ready(), SHORT, starting).await, Exit::TimedOut);
    let unschedulable = |_| web(|s| (s.running, s.updated, s.pending, s.unschedulable) = (2, 2, 1, 1));
    assert_eq!(wait(ready(), SHORT, unschedulable).await, Exit::Unschedulable);
    assert_eq!(wait(ready(), SHORT, |_| problem(503)).await, Exit::Unreachable);
    let failed = |_| web(|s| (s.running, s.updated, s.failed) = (2, 2, 1));
    assert_eq!(wait(ready(), SHORT, failed).await, Exit::Error);
}

#[tokio::test]
async fn a_permanent_error_ends_waiting_at_once() {
    assert_eq!(wait(ready(), LONG, |_| problem(404)).await, Exit::NotFound);
    assert_eq!(wait(ready(), LONG, |_| problem(401)).await, Exit::Unauthorized);
}

#[tokio::test]
async fn waits_until_a_service_or_a_pod_is_gone() {
    let gone = Goal::ServiceGone { service: "web".to_owned() };
    let respond = |poll| if poll == 0 { web(|_| {}) } else { problem(404) };
    assert_eq!(wait(gone, LONG, respond).await, Exit::Ok);
    let gone = Goal::PodGone { id: PodId::new("djkf").unwrap(), name: "web-0".to_owned() };
    let phase = |poll| if poll == 0 { Phase::Stopping } else { Phase::Stopped };
    assert_eq!(wait(gone, LONG, move |poll| ok_json(&fixtures::pod("djkf", phase(poll)))).await, Exit::Ok);
}

#[tokio::test]
async fn an_event_about_the_goal_ends_the_pause() {
    let event =
        r#"{"id":"1-0","at":1,"kind":"pod","object":"p","name":"web","reason":"Started","message":""}"#;
    let stream = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {event}\n\n"
    );
    let api = FakeApi::start(move |_| stream.clone()).await;
    let client = Client::new(&api.address, None).unwrap();
    let mut hints = Hints::open(&client, &ready()).await;
    let started = Instant::now();
    hints.wait(LONG, Duration::ZERO).await;
    assert!(started.elapsed() < LONG / 2);
}

#[tokio::test]
async fn the_first_failure_sets_the_exit_code_and_the_other_goals_are_waited_for() {
    let api = FakeApi::start(|request| match request {
        r if r.starts_with("GET /service/a ") => problem(404),
        r if r.starts_with("GET /service/b ") => ok_json(&fixtures::service("b")),
        _ => problem(503),
    });
    let mut api = api.await;
    let goals = ["a", "b"].map(|name| Goal::Ready { service: name.to_owned(), generation: 1 });
    let waiter = Waiter::new(Client::new(&api.address, None).unwrap(), LONG);
    assert_eq!(waiter.wait_for_all(goals.to_vec()).await, Exit::NotFound);
    assert!(api.request_lines().contains(&"GET /service/b".to_owned()));
}

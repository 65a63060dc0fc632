//! Waiting against an API that is played: how it ends, and with which code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use api::dto::ServiceStatus;
use common::lifecycle::Phase;

use super::*;
use crate::client::fake::{FakeApi, no, yes};
use crate::client::samples;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn ready() -> Goal {
    Goal::Ready { service: "web".to_owned(), generation: 1 }
}

async fn wait(goal: Goal, timeout: Duration, play: impl Fn(usize) -> String + Send + Sync + 'static) -> Exit {
    let looks = AtomicUsize::new(0);
    let api = FakeApi::start(move |request| {
        // Waiting goes on without hints.
        if request.starts_with("GET /event") { no(503) } else { play(looks.fetch_add(1, Ordering::SeqCst)) }
    })
    .await;
    Waiter::new(Client::new(&api.address, None).unwrap(), timeout).until(goal).await
}

fn web(change: impl FnOnce(&mut ServiceStatus)) -> String {
    let mut service = samples::service("web");
    change(&mut service.status);
    yes(&service)
}

#[tokio::test]
async fn it_becomes_ready_although_the_api_goes_away_in_between() {
    let play = |look| match look {
        0 => web(|s| (s.running, s.updated, s.assigned) = (2, 2, 1)),
        1 => no(503),
        _ => web(|_| {}),
    };
    assert_eq!(wait(ready(), LONG, play).await, Exit::Ok);
}

#[tokio::test]
async fn time_runs_out() {
    let starting = |_| web(|s| (s.running, s.updated, s.assigned) = (2, 2, 1));
    assert_eq!(wait(ready(), SHORT, starting).await, Exit::TimedOut);
    let nowhere = |_| web(|s| (s.running, s.updated, s.pending, s.unschedulable) = (2, 2, 1, 1));
    assert_eq!(wait(ready(), SHORT, nowhere).await, Exit::Unschedulable);
    assert_eq!(wait(ready(), SHORT, |_| no(503)).await, Exit::Unreachable);
    let failed = |_| web(|s| (s.running, s.updated, s.failed) = (2, 2, 1));
    assert_eq!(wait(ready(), SHORT, failed).await, Exit::Error);
}

#[tokio::test]
async fn it_does_not_wait_for_what_can_not_be() {
    assert_eq!(wait(ready(), LONG, |_| no(404)).await, Exit::NotFound);
    assert_eq!(wait(ready(), LONG, |_| no(401)).await, Exit::Unauthorized);
}

#[tokio::test]
async fn things_go() {
    let gone = Goal::ServiceGone { service: "web".to_owned() };
    let play = |look| if look == 0 { web(|_| {}) } else { no(404) };
    assert_eq!(wait(gone, LONG, play).await, Exit::Ok);
    let gone = Goal::PodGone { id: PodId::new("djkf").unwrap() };
    let phase = |look| if look == 0 { Phase::Stopping } else { Phase::Stopped };
    assert_eq!(wait(gone, LONG, move |look| yes(&samples::pod("djkf", phase(look)))).await, Exit::Ok);
}

#[tokio::test]
async fn a_hint_is_faster_than_the_clock() {
    let event =
        r#"{"id":"1-0","at":1,"kind":"pod","object":"p","name":"web","reason":"Started","message":""}"#;
    let stream = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {event}\n\n"
    );
    let api = FakeApi::start(move |_| stream.clone()).await;
    let client = Client::new(&api.address, None).unwrap();
    let mut hints = Hints::open(&client, &ready()).await;
    let begun = Instant::now();
    hints.wait(LONG, Duration::ZERO).await;
    assert!(begun.elapsed() < LONG / 2);
}

#[tokio::test]
async fn the_first_that_fails_gives_the_code_and_the_others_are_waited_for() {
    let api = FakeApi::start(|request| match request {
        r if r.starts_with("GET /service/a ") => no(404),
        r if r.starts_with("GET /service/b ") => yes(&samples::service("b")),
        _ => no(503),
    });
    let mut api = api.await;
    let goals = ["a", "b"].map(|name| Goal::Ready { service: name.to_owned(), generation: 1 });
    let waiter = Waiter::new(Client::new(&api.address, None).unwrap(), LONG);
    assert_eq!(waiter.until_all(goals.to_vec()).await, Exit::NotFound);
    assert!(api.seen().contains(&"GET /service/b".to_owned()));
}

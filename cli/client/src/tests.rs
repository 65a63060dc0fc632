//! The client with a fake API.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use testkit::api_fixtures as fixtures;
use testkit::fake_api::{FakeApi, problem, response};

use super::*;

fn client(address: &str) -> Client {
    Client::new(address, None).unwrap()
}

#[tokio::test]
async fn a_problem_is_shown_with_its_fields_and_advice() {
    let api = FakeApi::with_responses(vec![problem(422), problem(500), problem(401)]).await;
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert_eq!(error, "reading service web: Not so: because\n  /image: an image is required");
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert!(error.contains("request id r-1"), "{error}");
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert!(error.contains("--token-file"), "{error}");
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let page = |name: &str, next: &str| {
        let item = serde_json::to_string(&fixtures::service(name)).unwrap();
        response("200 OK", "application/json", &format!("{{\"items\":[{item}]{next}}}"))
    };
    let mut api = FakeApi::with_responses(vec![page("a", ",\"next\":\"a\""), page("b", "")]).await;
    let services = client(&api.address).services(Some("x=y".to_owned())).await.unwrap();
    let names: Vec<_> = services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(api.next_request().await.starts_with("GET /service?label=x%3Dy HTTP"));
    assert!(api.next_request().await.starts_with("GET /service?label=x%3Dy&after=a HTTP"));
}

#[tokio::test]
async fn an_event_stream_skips_unknown_events_and_resumes_after_the_last_one() {
    let event = |n: u32| {
        format!(
            r#"{{"id":"{n}-0","at":{n},"kind":"pod","object":"p","reason":"Started","message":"it runs"}}"#
        )
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let body = format!(
        ": hello\n\nid: 1-0\ndata: {}\n\ndata: {{\"unknown\":1}}\n\ndata: {}\n\n",
        event(1),
        event(2)
    );
    let mut api = FakeApi::with_responses(vec![format!("{head}{body}"), format!("{head}{body}")]).await;
    let client = client(&api.address);
    let mut stream = client.watch(&EventsFrom::Tail(5)).await.unwrap();
    assert_eq!(stream.next().await.unwrap().id, "1-0");
    assert_eq!(stream.next().await.unwrap().id, "2-0");
    assert!(stream.next().await.unwrap_err().is_transient());
    assert!(api.next_request().await.starts_with("GET /event?tail=5 "));
    client.watch(&EventsFrom::After("2-0".to_owned())).await.unwrap();
    assert!(api.next_request().await.contains("last-event-id: 2-0"));
}

//! The client against a fake API: the requests it sends, and what it makes of each response.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use common::secret::Secret;
use tokio::net::TcpListener;

use super::fake_api::{FakeApi, problem, response};
use super::*;
use crate::exit::Exit;

fn client(address: &str) -> Client {
    Client::new(address, None).unwrap()
}

#[tokio::test]
async fn every_status_has_its_exit_code() {
    let table = [
        (400, Exit::Error),
        (401, Exit::Unauthorized),
        (403, Exit::Unauthorized),
        (404, Exit::NotFound),
        (409, Exit::Conflict),
        (412, Exit::Conflict),
        (413, Exit::Error),
        (422, Exit::Usage),
        (500, Exit::Error),
        (502, Exit::Error),
        (503, Exit::Unreachable),
        (504, Exit::Unreachable),
    ];
    let api = FakeApi::with_responses(table.iter().map(|(status, _)| problem(*status)).collect()).await;
    for (status, exit) in table {
        let error = client(&api.address).service("web").await.unwrap_err();
        assert_eq!((error.status(), error.exit()), (Some(status), exit), "{status}");
    }
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
async fn a_refused_connection_says_how_to_start_or_find_the_api() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&address).status().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Unreachable);
    let text = error.to_string();
    for part in [address.as_str(), "refused", "kubeleet dev", "KUBELEET_API"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_response_of_another_server_is_not_a_kubeleet_api() {
    let not_found = response("404 Not Found", "text/html", "<h1>nothing here</h1>");
    let api =
        FakeApi::with_responses(vec![not_found, response("200 OK", "text/html", "<h1>hello</h1>")]).await;
    for part in ["status 404", "status 200"] {
        let error = client(&api.address).service("web").await.unwrap_err();
        assert_eq!(error.exit(), Exit::Error);
        let text = error.to_string();
        assert!(text.contains(part) && text.contains("--api") && text.contains("<h1>"), "{text}");
    }
}

#[tokio::test]
async fn a_truncated_response_is_an_error_and_a_write_may_have_been_made() {
    let half = || "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"name\":".to_owned();
    let api = FakeApi::with_responses(vec![half(), half()]).await;
    let read = client(&api.address).service("web").await.unwrap_err();
    assert!(read.is_transient() && !read.to_string().contains("may have been made"), "{read}");
    assert_eq!(read.exit(), Exit::Unreachable);
    let write = client(&api.address).scale("web", 3).await.unwrap_err();
    assert!(write.to_string().contains("the change may have been made"), "{write}");
}

#[tokio::test]
async fn the_token_is_sent_but_never_printed() {
    let mut api = FakeApi::with_responses(vec![problem(401)]).await;
    let client = Client::new(&api.address, Some(Secret::new("s3cret"))).unwrap();
    let error = client.status().await.unwrap_err();
    let request = api.next_request().await;
    assert!(request.contains("authorization: Bearer s3cret"), "{request}");
    assert!(!format!("{client:?} {error:?} {error}").contains("s3cret"));
    assert_eq!(Client::new(&api.address, Some(Secret::new("a\nb"))).unwrap_err().exit(), Exit::Usage);
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

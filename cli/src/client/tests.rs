//! The client against a listener that plays the API: what is sent, and what becomes of each answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use common::config::Secret;
use tokio::net::TcpListener;

use super::fake::{FakeApi, answer, no};
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
        (422, Exit::Error),
        (500, Exit::Error),
        (502, Exit::Error),
        (503, Exit::Unreachable),
        (504, Exit::Unreachable),
    ];
    let api = FakeApi::script(table.iter().map(|(status, _)| no(*status)).collect()).await;
    for (status, exit) in table {
        let error = client(&api.address).service("web").await.unwrap_err();
        assert_eq!((error.status(), error.exit()), (Some(status), exit), "{status}");
    }
}

#[tokio::test]
async fn a_problem_is_told_with_its_fields() {
    let api = FakeApi::script(vec![no(422), no(500), no(401)]).await;
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert_eq!(error, "reading service web: Not so: because\n  /image: an image is required");
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert!(error.contains("request id r-1"), "{error}");
    let error = client(&api.address).service("web").await.unwrap_err().to_string();
    assert!(error.contains("--token-file"), "{error}");
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&address).status().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Unreachable);
    let text = error.to_string();
    for part in [&*address, "refused", "kubeleet dev", "KUBELEET_API"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn somebody_else_listens() {
    let not_found = answer("404 Not Found", "text/html", "<h1>nothing here</h1>");
    let api = FakeApi::script(vec![not_found, answer("200 OK", "text/html", "<h1>hello</h1>")]).await;
    for part in ["answers 404", "answers 200"] {
        let error = client(&api.address).service("web").await.unwrap_err();
        assert_eq!(error.exit(), Exit::Error);
        let text = error.to_string();
        assert!(text.contains(part) && text.contains("--api") && text.contains("<h1>"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let half = || "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"name\":".to_owned();
    let api = FakeApi::script(vec![half(), half()]).await;
    let read = client(&api.address).service("web").await.unwrap_err();
    assert!(read.is_passing() && !read.to_string().contains("may have done it"), "{read}");
    assert_eq!(read.exit(), Exit::Unreachable);
    let write = client(&api.address).scale("web", 3).await.unwrap_err();
    assert!(write.to_string().contains("it may have done it all the same"), "{write}");
}

#[tokio::test]
async fn the_token_is_sent_and_never_shown() {
    let mut api = FakeApi::script(vec![no(401)]).await;
    let client = Client::new(&api.address, Some(Secret::new("s3cret"))).unwrap();
    let error = client.status().await.unwrap_err();
    let request = api.request().await;
    assert!(request.contains("authorization: Bearer s3cret"), "{request}");
    assert!(!format!("{client:?} {error:?} {error}").contains("s3cret"));
    assert_eq!(Client::new(&api.address, Some(Secret::new("a\nb"))).unwrap_err().exit(), Exit::Usage);
}

#[tokio::test]
async fn pages_are_joined() {
    let page = |name: &str, next: &str| {
        let item = serde_json::to_string(&samples::service(name)).unwrap();
        answer("200 OK", "application/json", &format!("{{\"items\":[{item}]{next}}}"))
    };
    let mut api = FakeApi::script(vec![page("a", ",\"next\":\"a\""), page("b", "")]).await;
    let services = client(&api.address).services(&["x=y".to_owned()]).await.unwrap();
    let names: Vec<_> = services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(api.request().await.starts_with("GET /service?label=x%3Dy HTTP"));
    assert!(api.request().await.starts_with("GET /service?label=x%3Dy&after=a HTTP"));
}

#[tokio::test]
async fn events_come_as_they_are_sent_and_go_on_after_the_last() {
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
    let mut api = FakeApi::script(vec![format!("{head}{body}"), format!("{head}{body}")]).await;
    let client = client(&api.address);
    let mut stream = client.watch(&EventsFrom::Tail(5)).await.unwrap();
    assert_eq!(stream.next().await.unwrap().id, "1-0");
    assert_eq!(stream.next().await.unwrap().id, "2-0");
    assert!(stream.next().await.unwrap_err().is_passing());
    assert!(api.request().await.starts_with("GET /event?tail=5 "));
    client.watch(&EventsFrom::After("2-0".to_owned())).await.unwrap();
    assert!(api.request().await.contains("last-event-id: 2-0"));
}

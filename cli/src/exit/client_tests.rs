//! Errors of the client with a fake API, with their exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use client::Client;
use model::value::secret::Secret;
use testkit::fake_api::{FakeApi, problem, response};
use tokio::net::TcpListener;

use super::{ErrorExit, Exit};

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

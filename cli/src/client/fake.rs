//! A listener that plays the API in tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// An API whose answers a function gives; it is asked with the whole request, one connection for each.
pub(crate) struct FakeApi {
    /// `http://127.0.0.1:<port>`.
    pub(crate) address: String,
    requests: mpsc::UnboundedReceiver<String>,
}

impl FakeApi {
    /// Answers every request with what `play` makes of it.
    pub(crate) async fn start(play: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (asked, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let request = read_request(&mut connection).await;
                connection.write_all(play(&request).as_bytes()).await.unwrap();
                if asked.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// Answers with these texts, one after the other.
    pub(crate) async fn script(answers: Vec<String>) -> Self {
        let left = std::sync::Mutex::new(answers.into_iter());
        Self::start(move |_| left.lock().unwrap().next().expect("no more requests than answers")).await
    }

    /// The next request that came.
    pub(crate) async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }

    /// The first lines of all that came so far.
    pub(crate) fn seen(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(request) = self.requests.try_recv() {
            lines.push(request.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned());
        }
        lines
    }
}

async fn read_request(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let length = connection.read(&mut piece).await.unwrap();
        request.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&request);
        if length == 0
            || text.split_once("\r\n\r\n").is_some_and(|(head, body)| body.len() >= body_length(head))
        {
            return text.into_owned();
        }
    }
}

fn body_length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map_or(0, |length| length.parse().unwrap())
}

/// An answer with a body of a kind.
pub(crate) fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// An answer that says yes, with data.
pub(crate) fn yes(body: &impl serde::Serialize) -> String {
    answer("200 OK", "application/json", &serde_json::to_string(body).unwrap())
}

/// An answer that says no.
pub(crate) fn no(status: u16) -> String {
    let body = format!(
        r#"{{"type":"/problems/x","title":"Not so","status":{status},"detail":"because","request_id":"r-1",
            "errors":[{{"pointer":"/image","detail":"an image is required"}}]}}"#
    );
    answer(&format!("{status} Text"), "application/problem+json", &body)
}

//! A fake API: a listener with scripted responses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Each request has its own connection.
pub struct FakeApi {
    pub address: String,
    requests: mpsc::UnboundedReceiver<String>,
}

impl FakeApi {
    pub async fn start(respond: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (received, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let request = read_request(&mut connection).await;
                connection.write_all(respond(&request).as_bytes()).await.unwrap();
                if received.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// One after the other.
    pub async fn with_responses(responses: Vec<String>) -> Self {
        let responses = parking_lot::Mutex::new(responses.into_iter());
        Self::start(move |_| responses.lock().next().expect("a response for each request")).await
    }

    pub async fn next_request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }

    /// The first lines of all requests that have arrived.
    pub fn request_lines(&mut self) -> Vec<String> {
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
        let mut chunk = [0; 4096];
        let length = connection.read(&mut chunk).await.unwrap();
        request.extend_from_slice(&chunk[..length]);
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

pub fn response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

pub fn ok_json(body: &impl serde::Serialize) -> String {
    response("200 OK", "application/json", &serde_json::to_string(body).unwrap())
}

pub fn problem(status: u16) -> String {
    let body = format!(
        r#"{{"type":"/problems/x","title":"Not so","status":{status},"detail":"because","request_id":"r-1",
            "errors":[{{"pointer":"/image","detail":"an image is required"}}]}}"#
    );
    response(&format!("{status} Text"), "application/problem+json", &body)
}

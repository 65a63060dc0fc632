//! A proxy between a store and its Redis that records requests. It can replace a script's hash by that of an
//! ablated script.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const HASH_PREFIX: &[u8] = b"$40\r\n";
const HASH_LENGTH: usize = HASH_PREFIX.len() + 40;

/// Closes its connections when dropped.
pub struct Proxy {
    port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
    task: AbortHandle,
}

impl Proxy {
    /// The first hash of each pair is replaced by the second.
    pub async fn start(redis: u16, hashes: Vec<(String, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
        let rewriter = Arc::new(Rewriter { hashes, skips_wait: false });
        let recorded = sent.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(forward(client, redis, rewriter.clone(), recorded.clone()));
            }
        });
        Self { port, sent, task: task.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn sent(&self) -> Vec<u8> {
        self.sent.lock().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default)]
pub struct Rewriter {
    pub hashes: Vec<(String, String)>,
    /// Replaces `WAIT` by a command that confirms nine replicas at once: see [`NINE`].
    pub skips_wait: bool,
}

/// Key with a text of nine bytes; a skipped `WAIT` becomes `STRLEN` of it.
pub const NINE: &str = "chaos:nine";

impl Rewriter {
    /// Returns how many bytes can be sent: the rest may begin a hash.
    pub fn rewrite(&self, pending: &mut Vec<u8>) -> usize {
        replace(pending, &self.hashes);
        if self.skips_wait {
            skip_wait(pending);
        }
        if self.hashes.is_empty() { pending.len() } else { pending.len() - unfinished(pending) }
    }
}

/// `WAIT` is sent alone and arrives in one piece.
fn skip_wait(pending: &mut Vec<u8>) {
    const WAIT: &[u8] = b"*3\r\n$4\r\nWAIT\r\n";
    while let Some(at) = pending.windows(WAIT.len()).position(|window| window == WAIT) {
        // The length and the value of two arguments.
        let ends = pending[at + WAIT.len()..].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let Some((end, _)) = ends.take(4).nth(3) else { return };
        let strlen = format!("*2\r\n$6\r\nSTRLEN\r\n${}\r\n{NINE}\r\n", NINE.len());
        pending.splice(at..at + WAIT.len() + end + 1, strlen.into_bytes());
    }
}

async fn forward(
    client: TcpStream,
    redis: u16,
    rewriter: Arc<Rewriter>,
    recorded: Arc<Mutex<Vec<u8>>>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(("127.0.0.1", redis)).await?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async move {
        let mut pending = Vec::new();
        loop {
            if from_client.read_buf(&mut pending).await? == 0 {
                return to_server.shutdown().await;
            }
            let ready = rewriter.rewrite(&mut pending);
            recorded.lock().extend_from_slice(&pending[..ready]);
            to_server.write_all(&pending[..ready]).await?;
            pending.drain(..ready);
        }
    };
    let replies = async move {
        tokio::io::copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(requests, replies)?;
    Ok(())
}

fn replace(bytes: &mut [u8], hashes: &[(String, String)]) {
    if hashes.is_empty() {
        return;
    }
    let mut at = 0;
    while at + HASH_LENGTH <= bytes.len() {
        if bytes[at..].starts_with(HASH_PREFIX) {
            let hash = &mut bytes[at + HASH_PREFIX.len()..at + HASH_LENGTH];
            if let Some((_, other)) = hashes.iter().find(|(ours, _)| ours.as_bytes() == hash) {
                hash.copy_from_slice(other.as_bytes());
            }
        }
        at += 1;
    }
}

fn unfinished(bytes: &[u8]) -> usize {
    let begins = |tail: &[u8]| match tail.strip_prefix(HASH_PREFIX) {
        Some(digits) => digits.iter().all(u8::is_ascii_hexdigit),
        None => HASH_PREFIX.starts_with(tail),
    };
    (1..HASH_LENGTH.min(bytes.len() + 1))
        .rev()
        .find(|&count| begins(&bytes[bytes.len() - count..]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_held_back_until_it_is_complete() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let command = format!("*3\r\n$7\r\nEVALSHA\r\n$40\r\n{hash}\r\n$1\r\n0\r\n");
        for cut in 0..command.len() {
            let head = &command.as_bytes()[..cut];
            let start = command.find("$40").unwrap();
            let expected = if (start + 1..start + HASH_LENGTH).contains(&cut) { cut - start } else { 0 };
            let lone = usize::from(expected == 0 && head.ends_with(b"$"));
            assert_eq!(unfinished(head), expected.max(lone), "{:?}", String::from_utf8_lossy(head));
        }
        let mut bytes = command.clone().into_bytes();
        replace(&mut bytes, &[(hash.to_owned(), "f".repeat(40))]);
        assert_eq!(String::from_utf8(bytes).unwrap(), command.replace(hash, &"f".repeat(40)));
    }

    #[test]
    fn a_skipped_wait_becomes_a_strlen() {
        let rewriter = Rewriter { hashes: Vec::new(), skips_wait: true };
        let mut bytes =
            b"*1\r\n$4\r\nPING\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$4\r\n1000\r\n*1\r\n$4\r\nPING\r\n".to_vec();
        let ready = rewriter.rewrite(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(ready, text.len());
        assert_eq!(
            text,
            "*1\r\n$4\r\nPING\r\n*2\r\n$6\r\nSTRLEN\r\n$10\r\nchaos:nine\r\n*1\r\n$4\r\nPING\r\n"
        );
    }
}

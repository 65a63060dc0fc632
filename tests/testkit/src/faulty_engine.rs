//! A proxy between a worker and its container engine that injects faults into single requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

const MAX_HEAD_BYTES: usize = 64 * 1024;

/// This machine's: `DOCKER_HOST`, or else Docker's own.
pub fn engine_socket() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    PathBuf::from(host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineFault {
    Hang,
    Fail,
    Delay(Duration),
    /// The second word has the length of the first.
    Replace(&'static str, &'static str),
}

type EngineFaults = Arc<Mutex<Vec<(String, EngineFault)>>>;

/// Closes its connections when dropped.
pub struct FaultyEngine {
    path: PathBuf,
    faults: EngineFaults,
    task: AbortHandle,
    _directory: tempfile::TempDir,
}

impl FaultyEngine {
    pub fn start(socket: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (faults, engine) = (EngineFaults::default(), socket.to_owned());
        let faults_of_task = faults.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (faults, engine) = (faults_of_task.clone(), engine.clone());
                connections.spawn(async move {
                    let _ended = serve(client, &engine, &faults).await;
                });
            }
        });
        Self { path, faults, task: task.abort_handle(), _directory: directory }
    }

    pub fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// For requests whose first line contains `part`; the latest match counts.
    pub fn set(&self, part: &str, fault: EngineFault) {
        self.lock().insert(0, (part.to_owned(), fault));
    }

    /// Hanging requests continue to hang.
    pub fn heal(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<(String, EngineFault)>> {
        self.faults.lock()
    }
}

impl Drop for FaultyEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Every request has a connection of its own, so that it is seen.
async fn serve(mut client: UnixStream, engine: &Path, faults: &EngineFaults) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line_end = head.iter().position(|byte| *byte == b'\r').unwrap();
    let line = String::from_utf8_lossy(&head[..line_end]).into_owned();
    let fault = {
        let faults = faults.lock();
        faults.iter().find(|(part, _)| line.contains(part.as_str())).map(|(_, fault)| fault.clone())
    };
    match fault {
        Some(EngineFault::Hang) => return std::future::pending().await,
        Some(EngineFault::Fail) => {
            let body = r#"{"message":"the engine is sick"}"#;
            let head =
                format!("HTTP/1.1 500 X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            return client.write_all((head + body).as_bytes()).await;
        }
        Some(EngineFault::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(EngineFault::Replace(..)) | None => {}
    }
    let mut server = UnixStream::connect(engine).await?;
    head.splice(line_end + 2..line_end + 2, *b"Connection: close\r\n");
    server.write_all(&head).await?;
    if let Some(EngineFault::Replace(from, to)) = fault {
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        let at: Vec<usize> =
            (0..answer.len()).filter(|at| answer[*at..].starts_with(from.as_bytes())).collect();
        for at in at {
            answer[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
        return client.write_all(&answer).await;
    }
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

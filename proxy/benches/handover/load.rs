//! A constant load of consecutive requests on several connections, and its outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 32;
const BODY: usize = 4096;
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Failures are faster than answers: a failing proxy would get more requests.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Outcomes {
    pub failures: BTreeMap<String, usize>,
    pub resent: usize,
    /// Ascending, with failed ones.
    pub times: Vec<Duration>,
    pub elapsed: Duration,
}

impl Outcomes {
    pub fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len() - 1;
        self.times[(last as f64 * share).round() as usize]
    }

    fn add(&mut self, other: Self) {
        for (kind, count) in other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        self.resent += other.resent;
        self.times.extend(other.times);
    }
}

pub struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Outcomes>,
}

impl Load {
    pub fn start(address: SocketAddr) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let ends = is_over.clone();
        Self { is_over, thread: std::thread::spawn(move || run(address, &ends)) }
    }

    pub fn stop(self) -> Outcomes {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn run(address: SocketAddr, is_over: &Arc<AtomicBool>) -> Outcomes {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let mut outcomes = runtime.block_on(async {
        let clients: JoinSet<Outcomes> = (0..CONNECTIONS)
            .map(|number| {
                let client = LoadClient { address, kept: None, outcomes: Outcomes::default() };
                client.send_without_pause(number, is_over.clone())
            })
            .collect();
        let mut all = Outcomes::default();
        clients.join_all().await.into_iter().for_each(|outcomes| all.add(outcomes));
        all
    });
    outcomes.elapsed = begun.elapsed();
    outcomes.times.sort_unstable();
    outcomes
}

struct LoadClient {
    address: SocketAddr,
    kept: Option<SendRequest<Full<Bytes>>>,
    outcomes: Outcomes,
}

enum RequestFailure {
    NoConnection,
    NotSent,
    NoAnswer,
    CutAnswer,
    WrongAnswer,
    Status(StatusCode),
    TooLate,
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("no connection"),
            Self::NotSent => f.write_str("connection ended at once"),
            Self::NoAnswer => f.write_str("connection ended without an answer"),
            Self::CutAnswer => f.write_str("answer cut short"),
            Self::WrongAnswer => f.write_str("wrong answer"),
            Self::Status(status) => write!(f, "status {}", status.as_u16()),
            Self::TooLate => write!(f, "no answer within {} s", ANSWERED_WITHIN.as_secs()),
        }
    }
}

impl LoadClient {
    async fn send_without_pause(mut self, number: usize, is_over: Arc<AtomicBool>) -> Outcomes {
        for number in number.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let method = if number.is_multiple_of(3) { Method::POST } else { Method::GET };
            let begun = Instant::now();
            let sent = tokio::time::timeout(ANSWERED_WITHIN, self.send(&method));
            let result = sent.await.unwrap_or(Err(RequestFailure::TooLate));
            self.outcomes.times.push(begun.elapsed());
            if let Err(failure) = result {
                *self.outcomes.failures.entry(format!("{method}: {failure}")).or_default() += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.outcomes
    }

    /// Like browsers, repeats a GET if a kept connection ends instead of an answer.
    async fn send(&mut self, method: &Method) -> Result<(), RequestFailure> {
        loop {
            let (mut connection, is_kept) = self.connection().await?;
            match exchange(&mut connection, method).await {
                Ok(()) => {
                    self.kept = Some(connection);
                    return Ok(());
                }
                Err(RequestFailure::NotSent) if is_kept => {}
                Err(RequestFailure::NoAnswer) if is_kept && method == Method::GET => {
                    self.outcomes.resent += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn connection(&mut self) -> Result<(SendRequest<Full<Bytes>>, bool), RequestFailure> {
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
        {
            return Ok((kept, true));
        }
        let stream = TcpStream::connect(self.address).await.map_err(|_| RequestFailure::NoConnection)?;
        stream.set_nodelay(true).map_err(|_| RequestFailure::NoConnection)?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|_| RequestFailure::NoConnection)?;
        tokio::spawn(connection);
        Ok((sender, false))
    }
}

async fn exchange(connection: &mut SendRequest<Full<Bytes>>, method: &Method) -> Result<(), RequestFailure> {
    let length = if method == Method::POST { BODY } else { 0 };
    let request = Request::builder().method(method).uri("/").header("host", "web.example");
    let request = request.body(Full::from(vec![b'x'; length])).unwrap();
    let response = connection.try_send_request(request).await.map_err(|error| {
        if error.message().is_some() { RequestFailure::NotSent } else { RequestFailure::NoAnswer }
    })?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|_| RequestFailure::CutAnswer)?.to_bytes();
    match status {
        StatusCode::OK if body == length.to_string() => Ok(()),
        StatusCode::OK => Err(RequestFailure::WrongAnswer),
        status => Err(RequestFailure::Status(status)),
    }
}

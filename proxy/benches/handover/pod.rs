//! A small HTTP/1.1 server, which is killed to stop it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use testkit::child_guard::ChildGuard;
use tokio::net::TcpListener;

use crate::process;

/// The value is the address to listen on.
pub const IS_POD: &str = "KUBELEET_BENCH_POD";
/// The address of a pod is never reused.
pub const PORT: u16 = 18091;
const ANSWERS_AFTER: Duration = Duration::from_millis(5);

pub struct PodProcess {
    number: u32,
    process: ChildGuard,
}

impl PodProcess {
    pub fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed) + 1;
        let address = address(number);
        let mut command = process::this_program_as(IS_POD, &address.to_string());
        Self { number, process: process::start(&mut command, address) }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn address(&self) -> SocketAddr {
        address(self.number)
    }

    pub fn kill(mut self) {
        self.process.kill();
    }
}

pub fn address(number: u32) -> SocketAddr {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
    (Ipv4Addr::from(first + number), PORT).into()
}

pub fn serve(address: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let length = request.into_body().collect().await?.to_bytes().len();
    tokio::time::sleep(ANSWERS_AFTER).await;
    Ok(Response::new(Full::from(length.to_string())))
}

//! The program in the containers of the `hello` service.

use std::io::Write;
use std::net::Ipv4Addr;

use anyhow::Context;
use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::signal;

pub(crate) const PORT: u16 = 8000;

pub(crate) async fn run() -> anyhow::Result<()> {
    let stop_requested = signal::stop_requested()?;
    let greeting = format!("hello from {}\n", rustix::system::uname().nodename().to_string_lossy());
    write!(std::io::stdout(), "{greeting}")?;
    let stop = CancellationToken::new();
    let signals = async {
        stop_requested.await;
        stop.cancel();
    };
    let (served, ()) = tokio::join!(serve(greeting, stop.clone()), signals);
    writeln!(std::io::stdout(), "goodbye")?;
    served
}

/// Only in a container: plain processes of one machine would compete for this port.
async fn serve(greeting: String, stop: CancellationToken) -> anyhow::Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await.context("cannot listen")?;
    let app = Router::new().fallback(async || greeting);
    axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await.context("cannot serve")
}

//! The server in the containers of tests: tells each connection which container answers. Small, to listen
//! soon on a busy disk, where the product's executable takes seconds.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

const PORT: u16 = 8000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => drop(answers.spawn(answer(accepted?.0))),
            _ = terminate.recv() => break,
        }
    }
    drop(listener);
    while answers.join_next().await.is_some() {}
    Ok(())
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    // A short request arrives in one piece.
    if stream.read(&mut [0; 4_096]).await? == 0 {
        return Ok(());
    }
    let body = format!("hello from {}\n", rustix::system::uname().nodename().to_string_lossy());
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

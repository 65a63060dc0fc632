//! `port-forward`: forwards local connections to a port of a pod.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use clap::Args;
use client::{ChannelReceiver, ChannelSender, Client, ClientError, PING_INTERVAL};
use model::stream::channel::{Frame, MAX_DATA_BYTES, Purpose};
use output::stderr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::exit::Exit;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `port-forward`.
#[derive(Debug, Args)]
#[command(after_help = "Runs until Ctrl-C.")]
pub(crate) struct PortForwardArgs {
    /// Pod: uuid, beginning of one, or a name such as web-0; or a service, of which a pod is chosen.
    #[arg(value_name = "POD")]
    pod: String,
    /// A port of this machine and one of the pod; one number stands for both, 0 for any free port.
    #[arg(required = true, value_name = "LOCAL:PORT")]
    ports: Vec<PortPair>,
    /// The address of this machine to listen on. Other machines that reach it reach the pod.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortPair {
    local: u16,
    remote: u16,
}

impl FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is no port"));
        let pair = match text.split_once(':') {
            Some((local, remote)) => Self { local: number(local)?, remote: number(remote)? },
            None => Self { local: number(text)?, remote: number(text)? },
        };
        if pair.remote == 0 { Err("0 is no port of a pod".to_owned()) } else { Ok(pair) }
    }
}

struct ForwardTarget {
    client: Client,
    pod: String,
    port: u16,
}

pub(crate) async fn run(args: &PortForwardArgs, context: &mut Context<'_>) -> CommandResult {
    let pod = find_pod::running_pod(context, &args.pod).await?;
    let mut listeners = Vec::new();
    for pair in &args.ports {
        let address = SocketAddr::new(args.address, pair.local);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| {
            CommandError::Other(format!("cannot listen on {address}: {}", daemon::system_error(&error)))
        })?;
        let bound = listener.local_addr()?;
        context.output.print_bytes(format!("{bound} -> {} port {}\n", args.pod, pair.remote).as_bytes())?;
        let target =
            ForwardTarget { client: context.client.clone(), pod: pod.uuid.to_string(), port: pair.remote };
        listeners.push(accept_all(listener, Arc::new(target)));
    }
    tokio::select! {
        _ = futures_util::future::join_all(listeners) => Ok(Exit::Ok),
        _ = tokio::signal::ctrl_c() => Ok(Exit::Ok),
    }
}

async fn accept_all(listener: TcpListener, target: Arc<ForwardTarget>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let target = target.clone();
                tokio::spawn(async move {
                    if let Err(why) = forward(socket, &target).await {
                        stderr::error(&format!("port {}: {why}", target.port));
                    }
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn forward(socket: TcpStream, target: &ForwardTarget) -> Result<(), String> {
    let _best_effort = socket.set_nodelay(true);
    let purpose = Purpose::Forward { port: target.port };
    let opened = target.client.open_channel(&target.pod, None, &purpose).await;
    let (mut sender, mut receiver) = opened.map_err(|error| error.to_string())?;
    let (mut from_user, mut to_user) = socket.into_split();
    tokio::select! {
        received = receive(&mut receiver, &mut to_user) => received,
        // Ends only with an error: after the end of its input the connection still has output.
        error = send(&mut sender, &mut from_user) => Err(error.to_string()),
    }
}

async fn send(sender: &mut ChannelSender, from_user: &mut OwnedReadHalf) -> ClientError {
    let mut ping = tokio::time::interval(PING_INTERVAL);
    let mut is_open = true;
    loop {
        let mut buffer = BytesMut::with_capacity(MAX_DATA_BYTES);
        let read = tokio::select! {
            read = from_user.read_buf(&mut buffer), if is_open => Some(read),
            _ = ping.tick() => None,
        };
        let sent = match read {
            None => sender.ping().await,
            Some(Ok(1..)) => sender.send(&Frame::Input(buffer.freeze())).await,
            Some(Ok(0)) => {
                is_open = false;
                sender.send(&Frame::EndOfInput).await
            }
            Some(Err(_)) => {
                is_open = false;
                sender.send(&Frame::Closed).await
            }
        };
        if let Err(error) = sent {
            return error;
        }
    }
}

async fn receive(receiver: &mut ChannelReceiver, to_user: &mut OwnedWriteHalf) -> Result<(), String> {
    while let Some(frame) = receiver.next().await.map_err(|error| error.to_string())? {
        let goes_on = match frame {
            // Otherwise the user has closed the connection, which is not an error.
            Frame::Output(data) => to_user.write_all(&data).await.is_ok(),
            Frame::EndOfOutput => {
                let _closed = to_user.shutdown().await;
                true
            }
            Frame::Exit(_) => false,
            Frame::Failed(why) => return Err(why),
            _ => true,
        };
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_ports_are_read() {
        let pair = |local, remote| Ok(PortPair { local, remote });
        assert_eq!("8080:80".parse(), pair(8080, 80));
        assert_eq!("80".parse(), pair(80, 80));
        assert_eq!("0:80".parse(), pair(0, 80));
        for bad in ["", "80:", ":80", "0", "8080:0", "99999", "a:b", "1:2:3"] {
            assert!(bad.parse::<PortPair>().is_err(), "{bad}");
        }
    }
}

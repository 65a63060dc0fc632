//! A connection to a port of a pod. One channel carries one connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use daemon::system_error;
use model::ids::PodId;
use model::stream::channel::{Frame, MAX_DATA_BYTES};
use store::{Channel, ChannelError, ChannelReader, ChannelWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::answer::ends::{ChannelEnd, broken};
use crate::session::context::SessionContext;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn serve(
    context: &SessionContext,
    pod: &PodId,
    port: u16,
    channel: &mut Channel,
) -> Result<ChannelEnd, String> {
    let address = SocketAddr::new(address_of(context, pod)?, port);
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refused(pod, port, &system_error(&error))),
        Err(_) => {
            return Err(refused(pod, port, &format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())));
        }
    };
    let _best_effort = stream.set_nodelay(true);
    let (from_pod, to_pod) = stream.into_split();
    let Channel { writer, reader } = channel;
    if let Err(error) = writer.send(Frame::Started).await {
        return Ok(broken(&error));
    }
    let both = async { tokio::try_join!(receive(from_pod, writer), send(to_pod, reader)) };
    Ok(match both.await {
        Ok(_) => Some(Frame::Exit(0)),
        Err(ForwardStopped::Client) => None,
        Err(ForwardStopped::Channel(error)) => broken(&error),
        Err(ForwardStopped::Pod(error)) => Some(Frame::Failed(format!("the connection broke: {error}"))),
    })
}

enum ForwardStopped {
    Client,
    Channel(ChannelError),
    Pod(String),
}

fn refused(pod: &PodId, port: u16, why: &str) -> String {
    format!(
        "port {port} of pod {pod} cannot be reached: {why}; check that its program listens on that port, and on more than \
         its own loopback address"
    )
}

fn address_of(context: &SessionContext, pod: &PodId) -> Result<IpAddr, String> {
    let node = &context.worker.node;
    let managed = context.table.get(pod).ok_or_else(|| format!("pod {pod} is not on {node}"))?;
    let address = managed.address(context.worker.runtime.uses_host_network());
    address.ok_or_else(|| format!("pod {pod} has no address on {node} yet"))
}

async fn receive(mut from_pod: OwnedReadHalf, writer: &mut ChannelWriter) -> Result<(), ForwardStopped> {
    loop {
        let mut buffer = BytesMut::with_capacity(MAX_DATA_BYTES);
        let length = from_pod.read_buf(&mut buffer).await;
        if length.map_err(|error| ForwardStopped::Pod(system_error(&error)))? == 0 {
            return writer.send(Frame::EndOfOutput).await.map_err(ForwardStopped::Channel);
        }
        writer.send_data(buffer.freeze(), Frame::Output).await.map_err(ForwardStopped::Channel)?;
    }
}

async fn send(mut to_pod: OwnedWriteHalf, reader: &mut ChannelReader) -> Result<(), ForwardStopped> {
    loop {
        let (frame, _receipt) = reader.next().await.map_err(ForwardStopped::Channel)?;
        match frame {
            Frame::Input(data) => {
                let written = to_pod.write_all(&data).await;
                written.map_err(|error| ForwardStopped::Pod(system_error(&error)))?;
            }
            Frame::EndOfInput => {
                let _closed = to_pod.shutdown().await;
            }
            Frame::Closed => return Err(ForwardStopped::Client),
            _ => {}
        }
    }
}

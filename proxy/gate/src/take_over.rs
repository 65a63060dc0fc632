//! A new proxy process takes the sockets of the running one, which finishes its connections within a day.
//!
//! ```text
//! next     TakeOver ──>
//!              <── a line for each socket, with the socket itself, and the end of the list
//!                                                                former, which serves on
//! next     binds the socket of the workers in its place;  Taken ──>
//!              <── the pods of the workers, whose connections are ended
//!                                                                former, which accepts nothing any more
//! next     accepts;  each change of a pod, and each close of a gate ──>
//!              <── Drained, for each close                       former, until all has ended
//! ```
//!
//! A drain ends when neither process has anything in flight to the pod. If the next process ends, so does the
//! former: a process that starts then does not know of it.

mod former;
mod sockets;

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use model::ids::NodeName;
use model::network::handover::{FromWorker, Lines, LocalPod, MAX_PODS, lines, to_line};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio_util::codec::LinesCodecError;

pub use self::former::Former;
use crate::listening::Listening;

const OTHER_PROCESS_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Lines(#[from] LinesCodecError),
    #[error("its message is invalid: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("it ended the connection")]
    Ended,
    #[error("it did not answer within {} s; it has to be restarted", OTHER_PROCESS_WITHIN.as_secs())]
    Silent,
}

/// The pods of one node may come in several messages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FromFormer {
    Socket { name: String },
    AllSockets,
    Pods { node: NodeName, pods: Vec<LocalPod> },
    AllPods,
}

pub(crate) async fn ask(stream: UnixStream, listening: &Listening) -> Result<Lines, TakeOverError> {
    within(async {
        sockets::send(&stream, &format!("{}\n", to_line(&FromWorker::TakeOver)), None).await?;
        loop {
            let (line, socket) = sockets::receive(&stream).await?.ok_or(TakeOverError::Ended)?;
            match (serde_json::from_slice(&line)?, socket) {
                (FromFormer::Socket { name }, Some(socket)) => listening.inherit(name, socket),
                (FromFormer::AllSockets, None) => return Ok(()),
                _ => return Err(TakeOverError::Io(io::Error::other("a socket is missing"))),
            }
        }
    })
    .await?;
    Ok(lines(stream))
}

pub type PodsOfNodes = Vec<(NodeName, Vec<LocalPod>)>;

/// The running process then stops accepting.
pub(crate) async fn take(lines: &mut Lines) -> Result<PodsOfNodes, TakeOverError> {
    within(async {
        lines.send(to_line(&FromWorker::Taken)).await?;
        let mut rows = Vec::new();
        loop {
            let line = lines.next().await.ok_or(TakeOverError::Ended)??;
            match serde_json::from_str(&line)? {
                FromFormer::Pods { node, pods } => rows.push((node, pods)),
                FromFormer::AllPods => return Ok(rows),
                FromFormer::Socket { .. } | FromFormer::AllSockets => {}
            }
        }
    })
    .await
}

/// # Errors
/// The next process does not take them. This one then serves on.
pub(crate) async fn give(lines: &mut Lines, listening: &Listening) -> Result<(), TakeOverError> {
    within(async {
        for (name, socket) in listening.live_sockets() {
            let line = to_line(&FromFormer::Socket { name });
            sockets::send(lines.get_ref(), &format!("{line}\n"), Some(socket.as_fd())).await?;
        }
        lines.send(to_line(&FromFormer::AllSockets)).await?;
        let line = lines.next().await.ok_or(TakeOverError::Ended)??;
        match serde_json::from_str(&line)? {
            FromWorker::Taken => Ok(()),
            _ => Err(TakeOverError::Ended),
        }
    })
    .await
}

pub(crate) async fn tell(lines: &mut Lines, rows: PodsOfNodes) -> Result<(), TakeOverError> {
    within(async {
        for (node, pods) in rows {
            for pods in pods.chunks(MAX_PODS) {
                let pods = FromFormer::Pods { node: node.clone(), pods: pods.to_vec() };
                lines.feed(to_line(&pods)).await?;
            }
        }
        Ok(lines.send(to_line(&FromFormer::AllPods)).await?)
    })
    .await
}

async fn within<T>(answer: impl Future<Output = Result<T, TakeOverError>>) -> Result<T, TakeOverError> {
    tokio::time::timeout(OTHER_PROCESS_WITHIN, answer).await.unwrap_or(Err(TakeOverError::Silent))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use daemon::listen::Presence;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UdpSocket};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fixtures::{follower_of, local_pod};

    fn process() -> Listening {
        CancellationToken::new().into()
    }

    #[tokio::test]
    async fn sockets_come_with_what_waits_in_them_and_closed_ones_do_not_come() {
        let (former, next) = (process(), process());
        let [any, other] =
            ["127.0.0.1:0", "127.0.0.2:0"].map(|address| address.parse::<SocketAddr>().unwrap());
        let (tcp, udp) = (former.tcp(any).unwrap(), former.udp_at(any, Presence::Required).unwrap());
        drop(former.tcp(other).unwrap());
        let mut waiting = TcpStream::connect(tcp.local_addr().unwrap()).await.unwrap();
        waiting.write_all(b"waits").await.unwrap();
        let asking = UdpSocket::bind(any).await.unwrap();
        asking.send_to(b"asks", udp.local_addr().unwrap()).await.unwrap();

        let (here, there) = UnixStream::pair().unwrap();
        let rows = vec![(NodeName::new("n").unwrap(), vec![local_pod("a"); MAX_PODS + 1])];
        let giving = async {
            let mut lines = lines(here);
            let asked = lines.next().await.unwrap().unwrap();
            assert_eq!(serde_json::from_str::<FromWorker>(&asked).unwrap(), FromWorker::TakeOver);
            give(&mut lines, &former).await.unwrap();
            tell(&mut lines, rows.clone()).await.unwrap();
        };
        let taking = async {
            let mut lines = ask(there, &next).await.unwrap();
            take(&mut lines).await.unwrap()
        };
        let ((), told) = tokio::join!(giving, taking);
        let told: Vec<LocalPod> = told.into_iter().flat_map(|(_, pods)| pods).collect();
        assert_eq!(told, rows[0].1);

        let addresses = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        drop((tcp, udp));
        let (tcp, udp) = (next.tcp(any).unwrap(), next.udp_at(any, Presence::Required).unwrap());
        assert_eq!((tcp.local_addr().unwrap(), udp.local_addr().unwrap()), addresses);
        let mut bytes = [0; 16];
        let length = tcp.accept().await.unwrap().0.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..length], b"waits");
        let length = udp.recv(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..length], b"asks");
        assert_eq!(next.live_sockets().len(), 2);
    }

    #[tokio::test]
    async fn an_unused_socket_of_the_process_before_is_closed_after_a_while() {
        let former = process();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = former.tcp(any).unwrap();
        let address = socket.local_addr().unwrap();
        let next = follower_of(&former);
        drop(socket);
        assert!(TcpStream::connect(address).await.is_ok());
        next.drop_inherited();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_socket_that_was_not_asked_for_yet_goes_on_to_the_process_after_the_next() {
        let first = process();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = first.tcp(any).unwrap();
        let address = socket.local_addr().unwrap();
        let second = follower_of(&first);
        drop(socket);
        let third = follower_of(&second);
        second.hand_over();
        assert_eq!(third.tcp(any).unwrap().local_addr().unwrap(), address);
        // The port closes with the third process's listener.
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_answer_is_left_alone() {
        let (here, _there) = UnixStream::pair().unwrap();
        let error = ask(here, &process()).await.unwrap_err().to_string();
        assert!(error.contains("has to be restarted"), "{error}");
    }
}

//! The protocol between a worker and the proxy of its host: one JSON document per line over a local socket.
//! Repeating a message changes nothing.
//!
//! Receivers skip unknown messages: worker and proxy may be of different versions.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec};

use crate::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};

/// The name of the socket in the runtime directory.
pub const SOCKET_NAME: &str = "proxy.sock";

/// In bytes. Longer lines end the connection.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Maximum number of pods per message, far less than a line.
pub const MAX_PODS: usize = 1_000;

/// A connection between worker and proxy, framed as lines.
pub type Lines<S = UnixStream> = Framed<S, LinesCodec>;

/// Splits a connection into lines of bounded length.
pub fn lines<S: AsyncRead + AsyncWrite>(stream: S) -> Lines<S> {
    Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE_BYTES))
}

/// Serializes a message as a line, without the line break.
pub fn to_line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have no maps with other keys than texts")
}

/// A pod of this host: a row in the gate's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPod {
    /// The pod.
    pub pod: PodId,
    /// Its assignment. A new assignment is another row.
    pub assignment: AssignmentId,
    /// Number of container starts: a restart ends old connections.
    pub start: u64,
    /// Its service; `None` for a pushed pod.
    #[serde(default)]
    pub service: Option<ServiceName>,
    /// Its replica index.
    pub replica: u32,
    /// Its address on this host.
    pub address: IpAddr,
    /// True if the gate admits traffic.
    pub open: bool,
    /// True if the pod is ready.
    pub ready: bool,
    /// True if no container runs: the engine may reuse the address.
    pub ended: bool,
}

/// The host's address in a network of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    /// The address.
    pub address: Ipv4Addr,
    /// True if the host has it only while a container is in the network.
    pub on_demand: bool,
}

/// A message from the worker to the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message: identifies the worker.
    Hello {
        /// The worker's node.
        node: NodeName,
        /// The worker's session; a later one replaces the state of an earlier one.
        incarnation: Incarnation,
    },
    /// All pods of the worker: pods outside the list are gone.
    Pods {
        /// The pods, [`MAX_PODS`] at most.
        pods: Vec<LocalPod>,
        /// True if the next message continues the list.
        #[serde(default)]
        more: bool,
    },
    /// One new or changed pod.
    Set {
        /// The pod.
        pod: LocalPod,
    },
    /// One pod is gone.
    Remove {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
    },
    /// A pod is about to be stopped: admit no traffic, and report the end of the last request. Needs no
    /// [`FromWorker::Hello`]: the supervisor of a hanging worker sends it as well.
    Close {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
        /// Milliseconds until the proxy cuts what is still in flight.
        within_ms: u64,
    },
    /// The host has this address in a network of pods: resolve names there.
    Network {
        /// The host's address in the network.
        gateway: Ipv4Addr,
        /// See [`Gateway::on_demand`].
        #[serde(default)]
        on_demand: bool,
    },
    /// Asks for a sign of life.
    Ping,
    /// From the host's next proxy process: asks for the listening sockets. Afterwards the two proxies use the
    /// connection.
    TakeOver,
    /// The next process has the sockets and accepts workers: finish the accepted connections.
    Taken,
}

/// A message from the proxy to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromProxy {
    /// The immediate answer to [`FromWorker::Close`]: the gate is closed.
    Closed {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
        /// Number of admitted requests and connections that have not ended.
        in_flight: u64,
    },
    /// Nothing is in flight to the pod any more: it can be stopped.
    Drained {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
        /// Milliseconds since the gate was closed.
        after_ms: u64,
        /// Number of requests and connections cut after the time limit.
        cut: u64,
    },
    /// Reports whether pods reach services by name, at first and after changes.
    Names {
        /// The obstacle, as a sentence without its full stop, if any.
        #[serde(default)]
        problem: Option<String>,
        /// The host's addresses with a resolver: see [`FromWorker::Network`].
        #[serde(default)]
        gateways: Vec<Ipv4Addr>,
    },
    /// The answer to [`FromWorker::Ping`].
    Pong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_of_pods_fits_into_a_line() {
        let long = "x".repeat(63);
        let pod = LocalPod {
            pod: PodId::new(format!("{long}{long}")).unwrap(),
            assignment: AssignmentId::new("x".repeat(64)).unwrap(),
            start: u64::MAX,
            service: ServiceName::new(long.clone()).ok(),
            replica: u32::MAX,
            address: IpAddr::from([0xffff; 8]),
            open: true,
            ready: true,
            ended: true,
        };
        let message = FromWorker::Pods { pods: vec![pod; MAX_PODS], more: true };
        let line = to_line(&message);
        assert!(line.len() < MAX_LINE_BYTES, "{}", line.len());
        assert_eq!(serde_json::from_str::<FromWorker>(&line).unwrap(), message);
    }

    #[test]
    fn fields_that_a_later_version_adds_are_skipped() {
        let message = r#"{"type":"remove","pod":"p","assignment":"a","why":"x"}"#;
        assert!(matches!(serde_json::from_str(message), Ok(FromWorker::Remove { .. })));
    }
}

//! The protocol between a worker and the proxy of its host: JSON documents, one per line, over a local
//! socket. Repeating a message changes nothing. Receivers skip unknown ones: versions may differ.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec};

use crate::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};

pub const SOCKET_NAME: &str = "proxy.sock";

/// Longer lines end the connection.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Far less than a line.
pub const MAX_PODS: usize = 1_000;

pub type Lines<S = UnixStream> = Framed<S, LinesCodec>;

pub fn lines<S: AsyncRead + AsyncWrite>(stream: S) -> Lines<S> {
    Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE_BYTES))
}

pub fn to_line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have no maps with other keys than texts")
}

/// A row in the gate's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPod {
    pub pod: PodId,
    /// A new assignment is another row.
    pub assignment: AssignmentId,
    /// A restart of the container ends old connections.
    pub start: u64,
    /// `None` for a pushed pod.
    pub service: Option<ServiceName>,
    pub replica: u32,
    pub address: IpAddr,
    pub open: bool,
    pub ready: bool,
    /// No container runs: the engine may reuse the address.
    pub ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    pub address: Ipv4Addr,
    /// The host has it only while a container is in the network.
    pub on_demand: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    Hello {
        node: NodeName,
        /// A later one replaces the state of an earlier one.
        incarnation: Incarnation,
    },
    /// All pods: others are gone.
    Pods {
        /// [`MAX_PODS`] at most.
        pods: Vec<LocalPod>,
        /// The next message continues the list.
        #[serde(default)]
        more: bool,
    },
    /// New or changed.
    Set {
        /// The pod.
        pod: LocalPod,
    },
    Remove {
        pod: PodId,
        assignment: AssignmentId,
    },
    /// Before a stop. Needs no [`FromWorker::Hello`]: the supervisor of a hanging worker sends it as well.
    Close {
        pod: PodId,
        assignment: AssignmentId,
        /// Then the proxy cuts what is still in flight.
        within_ms: u64,
    },
    /// Pods of this network ask for names.
    Network {
        gateway: Ipv4Addr,
        /// See [`Gateway::on_demand`].
        #[serde(default)]
        on_demand: bool,
    },
    Ping,
    /// From the next proxy process, for the listening sockets. Afterwards the two proxies use the connection.
    TakeOver,
    /// Finish the accepted connections.
    Taken,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromProxy {
    /// The immediate answer to [`FromWorker::Close`].
    Closed {
        pod: PodId,
        assignment: AssignmentId,
        /// Requests and connections.
        in_flight: u64,
    },
    /// The pod can be stopped.
    Drained {
        pod: PodId,
        assignment: AssignmentId,
        /// Since the gate was closed.
        after_ms: u64,
        /// After the time limit.
        cut: u64,
    },
    /// Whether pods reach services by name.
    Names {
        /// A sentence without its full stop.
        problem: Option<String>,
        /// With a resolver: see [`FromWorker::Network`].
        #[serde(default)]
        gateways: Vec<Ipv4Addr>,
    },
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

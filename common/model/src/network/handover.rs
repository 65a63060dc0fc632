//! What a worker and the proxy of its host say to each other over a local socket, one JSON document per line:
//! which pods are here, that a pod is about to be stopped, and whether pods reach services by name. Repeating
//! a message changes nothing.
//!
//! A message of a kind that the receiver does not know is skipped: worker and proxy may be of different
//! versions.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_util::codec::{Framed, LinesCodec};

use crate::ids::{AssignmentId, Incarnation, NodeName, PodId, ServiceName};

/// The name of the socket in the runtime directory.
pub const SOCKET_NAME: &str = "proxy.sock";

/// The longest line, in bytes. Longer ones end the connection.
const MAX_LINE: usize = 1 << 20;

/// How many pods one message has at most: far fewer than fit into a line.
pub const MAX_PODS: usize = 1_000;

/// A connection between worker and proxy, line by line.
pub type Lines<S = UnixStream> = Framed<S, LinesCodec>;

/// Splits a connection into lines of bounded length.
pub fn lines<S: AsyncRead + AsyncWrite>(stream: S) -> Lines<S> {
    Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE))
}

/// Returns a message as its line, without the line break.
pub fn to_line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have no maps with other keys than texts")
}

/// A pod of this host and where its containers are reached: a row in the gate's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPod {
    /// The pod.
    pub pod: PodId,
    /// Its assignment. A pod that is assigned anew is another row.
    pub assignment: AssignmentId,
    /// Counts the starts of its containers: connections to a container before its restart are of no use after
    /// it.
    pub start: u64,
    /// The service that it belongs to; `None` for a pushed pod.
    #[serde(default)]
    pub service: Option<ServiceName>,
    /// Its replica index.
    pub replica: u32,
    /// Its address as this host reaches it.
    pub address: IpAddr,
    /// Whether the gate lets anything in. A pod that is being stopped is closed.
    pub open: bool,
    /// Whether the pod is ready. A worker of the version before does not say so.
    #[serde(default)]
    pub ready: bool,
    /// Whether none of its containers runs: the engine may give its address to another pod. A worker of the
    /// version before does not say so.
    #[serde(default)]
    pub ended: bool,
}

/// The host in a network of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    /// Its address.
    pub address: Ipv4Addr,
    /// Whether the host has this address only while a container is in the network.
    pub on_demand: bool,
}

/// From the worker to the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message: who speaks.
    Hello {
        /// The worker's node.
        node: NodeName,
        /// The session of the worker; a later one replaces what an earlier one said.
        incarnation: Incarnation,
    },
    /// All pods of the worker: what is not in the list is not here any more.
    Pods {
        /// The pods, [`MAX_PODS`] at most.
        pods: Vec<LocalPod>,
        /// Whether the list goes on with the next message of this kind.
        #[serde(default)]
        more: bool,
    },
    /// One pod has changed, or is new.
    Set {
        /// The pod.
        pod: LocalPod,
    },
    /// One pod is not here any more.
    Remove {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
    },
    /// One pod is to be stopped: let nothing in any more, and tell when the last request has ended. Needs no
    /// [`FromWorker::Hello`]: the supervisor of a worker that hangs closes as well.
    Close {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
        /// Milliseconds after which what is still in flight is cut.
        within_ms: u64,
    },
    /// Pods are in the network behind this address of the host: resolve names there.
    Network {
        /// The address of the host in the network.
        gateway: Ipv4Addr,
        /// See [`Gateway::on_demand`].
        #[serde(default)]
        on_demand: bool,
    },
    /// Asks whether the proxy answers.
    Ping,
    /// From the next proxy process of this host: hand me your sockets. From then on the connection is between
    /// the two.
    TakeOver,
    /// The next process has the sockets, and listens for workers: end what you have accepted.
    Taken,
}

/// From the proxy to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromProxy {
    /// The answer to [`FromWorker::Close`], at once: nothing is let in from now on.
    Closed {
        /// The pod.
        pod: PodId,
        /// Its assignment.
        assignment: AssignmentId,
        /// Requests and connections that were let in before and have not ended.
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
        /// Requests and connections that were cut because they took longer than was allowed.
        cut: u64,
    },
    /// Whether pods can reach services by name. Sent at first and with each change.
    Names {
        /// Why they cannot, as a sentence without its full stop; `None` if they can.
        #[serde(default)]
        problem: Option<String>,
        /// The addresses of the host at which names are resolved: see [`FromWorker::Network`].
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
        assert!(line.len() < MAX_LINE, "{}", line.len());
        assert_eq!(serde_json::from_str::<FromWorker>(&line).unwrap(), message);
    }

    #[test]
    fn fields_that_a_later_version_adds_are_skipped() {
        let message = r#"{"type":"remove","pod":"p","assignment":"a","why":"x"}"#;
        assert!(matches!(serde_json::from_str(message), Ok(FromWorker::Remove { .. })));
    }
}

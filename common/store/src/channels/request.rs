//! Requests of clients to the worker of a node. All wait in one list of the node.

use redis::{Pipeline, cmd};
use serde::{Deserialize, Serialize};

use super::limits::{EXPIRE_SECONDS, MAX_REQUESTS};
use crate::keys::{self, channel};
use crate::node::hints::WorkerHint;
use crate::{Store, StoreError};
use model::ids::{ContainerName, NodeName, PodId, RequestId, ServiceName, SpecId};
use model::stream::channel::Purpose;
use model::value::registry::StoredLogin;

/// A request to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Its id, which is also that of the channel with the answer.
    pub id: RequestId,
    /// The question.
    pub question: NodeQuestion,
}

/// A request to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeQuestion {
    /// Connects a client to a pod.
    Connect(ConnectRequest),
    /// Sends the raw output of one container.
    Output(LogRequest),
    /// Sends the lines of several pods, merged by time.
    Lines(LinesRequest),
    /// Sends a [`GarbageView`](model::node::usage::GarbageView) of its disk as JSON.
    Garbage {
        /// True to remove the garbage first.
        removes: bool,
    },
    /// Checks a login, whose password is encrypted. Sends a
    /// [`LoginVerdict`](model::value::registry::LoginVerdict) as JSON.
    CheckLogin(StoredLogin),
    /// Pulls images. There is no channel: the worker records its progress, see
    /// [`PreparedImages`](crate::PreparedImages).
    Prepare {
        /// The specification with the images.
        spec: SpecId,
        /// The service of the specification.
        service: ServiceName,
    },
}

/// A request to connect a client to a pod: to a command, a port, or files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectRequest {
    /// The pod.
    pub pod: PodId,
    /// The container; by default the first one.
    pub container: Option<ContainerName>,
    /// The client's request.
    pub purpose: Purpose,
}

/// A request for the output of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// The pod.
    pub pod: PodId,
    /// The container of a pod with several; the first by default.
    pub container: Option<ContainerName>,
    /// Number of last lines to begin with.
    pub tail: usize,
    /// True to continue with new output.
    pub follow: bool,
}

/// A request for the lines of all these pods on a worker, merged by time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinesRequest {
    /// The pods that are on the node.
    pub pods: Vec<LoggedPod>,
    /// Services whose pods are read, including pods that start while following.
    pub services: Vec<ServiceName>,
    /// The container of pods with several; all by default.
    pub container: Option<ContainerName>,
    /// Number of last lines of each container; all by default.
    pub tail: Option<usize>,
    /// True to continue with new output.
    pub follow: bool,
    /// Only lines after this time, in nanoseconds since the Unix epoch.
    pub after: Option<u64>,
    /// Only lines before this time.
    pub until: Option<u64>,
    /// Only lines that contain this text.
    pub grep: Option<String>,
    /// Reads kept lines of removed containers instead of those of present pods.
    pub previous: bool,
}

/// A pod whose lines are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedPod {
    /// The pod.
    pub id: PodId,
    /// Its name with its index, such as `web-0`.
    pub name: String,
}

impl NodeRequest {
    /// Returns a request with a random id.
    pub fn new(question: NodeQuestion) -> Self {
        Self { id: RequestId::random(), question }
    }

    /// Adds the commands that leave this request for the worker of `node`.
    pub(crate) fn leave(&self, node: &NodeName, pipe: &mut Pipeline) {
        let requests = keys::requests(node);
        pipe.cmd("RPUSH").arg(&requests).arg(crate::json::to_json(self)).ignore();
        pipe.cmd("EXPIRE").arg(&requests).arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("PUBLISH").arg(channel::worker(node)).arg(WorkerHint::Requests.text()).ignore();
    }
}

impl Store {
    /// Takes the requests that wait for a worker. If the worker ends, they are lost, and their clients time
    /// out or ask again.
    pub async fn take_requests(&self, node: &NodeName) -> Result<Vec<NodeRequest>, StoreError> {
        let mut pop = cmd("LPOP");
        pop.arg(keys::requests(node)).arg(MAX_REQUESTS);
        let mut requests = Vec::new();
        // One hint may stand for many requests.
        loop {
            let found: Option<Vec<Vec<u8>>> = match self.link.query(&pop).await {
                Ok(found) => found,
                Err(error) if requests.is_empty() => return Err(error),
                // The taken requests are answered; the next hint or the clients bring the others.
                Err(_) => break,
            };
            let found = found.unwrap_or_default();
            requests.extend(found.iter().filter_map(|json| serde_json::from_slice(json).ok()));
            if found.len() < MAX_REQUESTS {
                break;
            }
        }
        Ok(requests)
    }
}

//! Requests to the worker of a node, which wait in one list of the node.

use redis::{Pipeline, cmd};
use serde::{Deserialize, Serialize};

use super::limits::{EXPIRE_SECONDS, MAX_REQUESTS};
use crate::keys::{self, channel};
use crate::node::hints::WorkerHint;
use crate::{Store, StoreError};
use model::ids::{ContainerName, NodeName, PodId, RequestId, ServiceName, SpecId};
use model::stream::channel::Purpose;
use model::value::registry::StoredLogin;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Also the id of the channel with the answer.
    pub id: RequestId,
    pub question: NodeQuestion,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeQuestion {
    Connect(ConnectRequest),
    /// Sends the raw output of one container.
    Output(LogRequest),
    /// Sends the lines of several pods, merged by time.
    Lines(LinesRequest),
    /// Sends a [`GarbageView`](model::node::usage::GarbageView) of its disk as JSON.
    Garbage {
        /// Removes the garbage first.
        removes: bool,
    },
    /// Checks a login with an encrypted password. Sends a
    /// [`LoginVerdict`](model::value::registry::LoginVerdict) as JSON.
    CheckLogin(StoredLogin),
    /// Pulls images. There is no channel: see [`PreparedImages`](crate::PreparedImages).
    Prepare {
        spec: SpecId,
        service: ServiceName,
    },
}

/// To a command, a port, or files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectRequest {
    pub pod: PodId,
    /// By default the first one.
    pub container: Option<ContainerName>,
    pub purpose: Purpose,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    pub pod: PodId,
    /// By default the first one.
    pub container: Option<ContainerName>,
    /// Number of last lines to begin with.
    pub tail: usize,
    /// Continues with new output.
    pub follow: bool,
}

/// Of all these pods on a worker, merged by time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinesRequest {
    pub pods: Vec<LoggedPod>,
    /// With pods that start while following.
    pub services: Vec<ServiceName>,
    /// Of pods with several; all by default.
    pub container: Option<ContainerName>,
    /// Last lines of each container; all by default.
    pub tail: Option<usize>,
    /// Continues with new output.
    pub follow: bool,
    /// Nanoseconds since the Unix epoch.
    pub after: Option<u64>,
    /// Nanoseconds since the Unix epoch.
    pub until: Option<u64>,
    /// Only lines that contain this text.
    pub grep: Option<String>,
    /// Reads kept lines of removed containers instead of those of present pods.
    pub previous: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedPod {
    pub id: PodId,
    /// With its index, such as `web-0`.
    pub name: String,
}

impl NodeRequest {
    /// With a random id.
    pub fn new(question: NodeQuestion) -> Self {
        Self { id: RequestId::random(), question }
    }

    /// Adds the commands that leave this request for the worker.
    pub(crate) fn leave(&self, node: &NodeName, pipe: &mut Pipeline) {
        let requests = keys::requests(node);
        pipe.cmd("RPUSH").arg(&requests).arg(crate::json::to_json(self)).ignore();
        pipe.cmd("EXPIRE").arg(&requests).arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("PUBLISH").arg(channel::worker(node)).arg(WorkerHint::Requests.text()).ignore();
    }
}

impl Store {
    /// If the worker dies, the requests are lost, and their clients time out or ask again.
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

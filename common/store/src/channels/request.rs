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
    /// Also identifies the channel.
    pub id: RequestId,
    pub question: NodeQuestion,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeQuestion {
    Connect(ConnectRequest),
    /// Sends the raw output of one container.
    Output(LogRequest),
    /// Sends lines of several pods, merged by time.
    Lines(LinesRequest),
    /// Sends a [`GarbageView`](model::node::usage::GarbageView) as JSON.
    Garbage {
        removes: bool,
    },
    /// The password is encrypted. Sends a [`LoginVerdict`](model::value::registry::LoginVerdict) as JSON.
    CheckLogin(StoredLogin),
    /// There is no channel: see [`PreparedImages`](crate::PreparedImages).
    Prepare {
        spec: SpecId,
        service: ServiceName,
    },
}

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
    pub tail: usize,
    pub follow: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinesRequest {
    pub pods: Vec<LoggedPod>,
    /// Includes pods that start while following.
    pub services: Vec<ServiceName>,
    /// Selects one of several; all by default.
    pub container: Option<ContainerName>,
    /// Counts for each container; all by default.
    pub tail: Option<usize>,
    pub follow: bool,
    /// Nanoseconds since the Unix epoch.
    pub after: Option<u64>,
    pub until: Option<u64>,
    pub grep: Option<String>,
    /// Reads kept lines of removed containers instead.
    pub previous: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedPod {
    pub id: PodId,
    /// Such as `web-0`.
    pub name: String,
}

impl NodeRequest {
    pub fn new(question: NodeQuestion) -> Self {
        Self { id: RequestId::random(), question }
    }

    pub(crate) fn leave(&self, node: &NodeName, pipe: &mut Pipeline) {
        let requests = keys::requests(node);
        pipe.cmd("RPUSH").arg(&requests).arg(crate::json::to_json(self)).ignore();
        pipe.cmd("EXPIRE").arg(&requests).arg(EXPIRE_SECONDS).ignore();
        pipe.cmd("PUBLISH").arg(channel::worker(node)).arg(WorkerHint::Requests.text()).ignore();
    }
}

impl Store {
    /// If the worker dies, requests are lost; clients time out or ask again.
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

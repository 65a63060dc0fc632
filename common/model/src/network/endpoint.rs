//! The endpoints of a service: pods and nodes. Only the proxy on the pod's node knows the address, so a
//! reused one is never reached.

use std::fmt;
use std::str::FromStr;

use crate::ids::{AssignmentId, NodeName, PodId};

/// A field of `ep:<service>`, named by the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub pod: PodId,
    pub replica: u32,
    pub node: NodeName,
    /// A moved pod is another endpoint.
    pub assignment: AssignmentId,
    pub state: EndpointState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointState {
    /// Reachable only by requests for this very replica.
    Running,
    Ready,
    /// About to be stopped: gets no new traffic.
    Leaving,
}

impl EndpointState {
    pub fn as_str(self) -> &'static str {
        match self {
            EndpointState::Running => "running",
            EndpointState::Ready => "ready",
            EndpointState::Leaving => "leaving",
        }
    }
}

impl FromStr for EndpointState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [EndpointState::Running, EndpointState::Ready, EndpointState::Leaving]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no state of an endpoint"))
    }
}

impl Endpoint {
    /// Parses `<replica> <node> <assignment> <state>`.
    pub fn parse(pod: PodId, value: &str) -> Result<Self, String> {
        let parts: Vec<&str> = value.split(' ').collect();
        let [replica, node, assignment, state] = parts[..] else {
            return Err(format!("{value:?} is not `<replica> <node> <assignment> <state>`"));
        };
        Ok(Self {
            pod,
            replica: replica.parse().map_err(|_| format!("{replica:?} is no replica index"))?,
            node: NodeName::new(node).map_err(|error| error.to_string())?,
            assignment: AssignmentId::new(assignment).map_err(|error| error.to_string())?,
            state: state.parse()?,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.replica, self.node, self.assignment, self.state.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_as_it_is_written() {
        let pod = PodId::new("p1").unwrap();
        let endpoint = Endpoint::parse(pod.clone(), "3 worker1 a-b ready").unwrap();
        assert_eq!((endpoint.replica, endpoint.state), (3, EndpointState::Ready));
        assert_eq!(Endpoint::parse(pod, &endpoint.to_string()), Ok(endpoint));
    }

    #[test]
    fn what_is_no_endpoint_is_an_error() {
        for value in [
            "",
            "3 worker1 a-b",
            "3 worker1 a-b gone",
            "x worker1 a-b ready",
            "3 -w a ready",
            "3 w a b ready",
        ] {
            assert!(Endpoint::parse(PodId::new("p1").unwrap(), value).is_err(), "{value:?}");
        }
    }
}

//! Reports of workers about their machines.

use redis::Value;

use crate::reply::read;
use crate::scripts::{disk_pressure, node_held, node_problems, shared_directory};
use crate::{Session, SessionResult, keys};
use model::node::HeldPod;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedDirectoryReport {
    Found(String),
    WithoutId,
    Unusable(String),
}

impl Session {
    /// `problem` is a sentence; empty if there is space.
    pub async fn report_disk_problem(&self, problem: &str) -> SessionResult<()> {
        let call = disk_pressure::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            problem,
        }
        .call();
        Ok(self.run("reporting a full disk", &call).await?.map(|_| ()))
    }

    /// The problems do not stop pods.
    pub async fn report_node_problems(&self, problems: &[String]) -> SessionResult<()> {
        let problems = problems.iter().map(|problem| problem.replace('\n', " "));
        let call = node_problems::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            problems: problems.collect::<Vec<_>>().join("\n"),
        }
        .call();
        Ok(self.run("reporting problems of a node", &call).await?.map(|_| ()))
    }

    /// The pods have no record, and this node leaves their containers alone.
    pub async fn report_held_pods(&self, pods: &[HeldPod]) -> SessionResult<()> {
        let call = node_held::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            pods: pods.iter().map(HeldPod::to_line).collect::<Vec<_>>().join("\n"),
        }
        .call();
        Ok(self.run("reporting pods without a record", &call).await?.map(|_| ()))
    }

    /// `known` is the cluster's id as last seen, which restores it in an emptied Redis. Returns that id;
    /// after `None`, give the directory an id and report again.
    pub async fn report_shared_directory(
        &self,
        report: &SharedDirectoryReport,
        known: Option<&str>,
    ) -> SessionResult<Option<String>> {
        let what = "reporting the shared directory";
        let (found, problem) = match report {
            SharedDirectoryReport::Found(id) => (id.as_str(), ""),
            SharedDirectoryReport::WithoutId => ("", ""),
            SharedDirectoryReport::Unusable(problem) => ("", problem.as_str()),
        };
        let call = shared_directory::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            found,
            known,
            problem,
        }
        .call();
        let rest = match self.run(what, &call).await? {
            Ok(rest) => rest,
            Err(fenced) => return Ok(Err(fenced)),
        };
        let (recorded,): (String,) = read(what, Value::Array(rest))?;
        Ok(Ok(Some(recorded).filter(|recorded| !recorded.is_empty())))
    }
}

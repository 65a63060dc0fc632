//! What workers report about their machines: which node has the cluster's directory for shared volumes,
//! whether its own disk is full, which pods without a record it holds, and what else is wrong.

use redis::Value;

use crate::reply::{unexpected, verdict, word};
use crate::scripts::{disk_pressure, node_held, node_problems, shared_directory};
use crate::{Fenced, Session, SessionResult, keys};
use model::node::HeldPod;

/// What a worker finds in the directory that its operator declares to be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedDirectoryReport {
    /// It has this id.
    Found(String),
    /// It has no id yet.
    WithoutId,
    /// It cannot be used: why, for people.
    Unusable(String),
}

impl Session {
    /// Reports what of the disk of this node is full, in a sentence; an empty one if there is room.
    ///
    /// # Errors
    /// See [`StoreError`](crate::StoreError).
    pub async fn report_disk_problem(&self, problem: &str) -> SessionResult<()> {
        let what = "reporting a full disk";
        let call = disk_pressure::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            problem,
        }
        .call();
        match verdict(what, self.store.link.script(&call).await?)?.0.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => Ok(Ok(())),
            other => Err(unexpected(what, other)),
        }
    }

    /// Reports what is wrong with this node although pods run on it, in sentences for people.
    ///
    /// # Errors
    /// See [`StoreError`](crate::StoreError).
    pub async fn report_node_problems(&self, problems: &[String]) -> SessionResult<()> {
        let what = "reporting problems of a node";
        let problems = problems.iter().map(|problem| problem.replace('\n', " "));
        let call = node_problems::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            problems: problems.collect::<Vec<_>>().join("\n"),
        }
        .call();
        match verdict(what, self.store.link.script(&call).await?)?.0.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => Ok(Ok(())),
            other => Err(unexpected(what, other)),
        }
    }

    /// Reports the pods of services that have no record, and whose containers this node leaves alone.
    ///
    /// # Errors
    /// See [`StoreError`](crate::StoreError).
    pub async fn report_held_pods(&self, pods: &[HeldPod]) -> SessionResult<()> {
        let what = "reporting pods without a record";
        let call = node_held::Head {
            node_key: keys::node(&self.node),
            node: &self.node,
            incarnation: &self.incarnation,
            pods: pods.iter().map(HeldPod::to_line).collect::<Vec<_>>().join("\n"),
        }
        .call();
        match verdict(what, self.store.link.script(&call).await?)?.0.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => Ok(Ok(())),
            other => Err(unexpected(what, other)),
        }
    }

    /// Reports the shared directory of this node. `known` is the id that the cluster's directory had when the
    /// worker heard of it last: a Redis that was emptied gets it back. Returns the id of the cluster's
    /// directory; `None` asks for a directory without an id to be given one and reported again.
    ///
    /// # Errors
    /// See [`StoreError`](crate::StoreError).
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
        let (answer, rest) = verdict(what, self.store.link.script(&call).await?)?;
        match answer.as_str() {
            "FENCED" => Ok(Err(Fenced::Dead)),
            "OK" => {
                let recorded = word(what, rest.into_iter().next().unwrap_or(Value::Nil))?;
                Ok(Ok(Some(recorded).filter(|recorded| !recorded.is_empty())))
            }
            other => Err(unexpected(what, other)),
        }
    }
}

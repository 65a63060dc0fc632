//! The directory for volumes that nodes share: which node has the one of the cluster.

use redis::Value;

use super::reply::{unexpected, verdict, word};
use super::scripts::shared_directory;
use super::{Fenced, Session, SessionResult, keys};

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
    /// Reports the shared directory of this node. `known` is the id that the cluster's directory had when the worker
    /// heard of it last: a Redis that was emptied gets it back. Returns the id of the cluster's directory; `None` asks
    /// for a directory without an id to be given one and reported again.
    ///
    /// # Errors
    /// See [`StoreError`](super::StoreError).
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

//! Draining nodes: the order, and the moves of pods of a service that follow from it.
//!
//! Tests: scripts::drains

use std::time::Duration;

use redis::Value;

use crate::loaded::field;
use crate::reply::{read, unexpected, word};
use crate::scripts::{moves_put, node_drain, node_drained};
use crate::{Store, StoreError, keys};
use model::ids::{NodeName, WriteId};
use model::node::drain::Drain;
use model::service::Service;
use model::service::moves::Moves;

/// The end of a drain, for its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainNews<'a> {
    Drained,
    /// With what is stopped now.
    PastDeadline(&'a str),
}

impl Store {
    /// Also cordons the node. Returns false if it does not exist.
    pub async fn drain_node(
        &self,
        name: &NodeName,
        deadline: Option<Duration>,
        stop_bound: bool,
    ) -> Result<bool, StoreError> {
        let until = deadline.map(|deadline| format!("; what is left in {deadline:?} is stopped"));
        let id = WriteId::random();
        let call = node_drain::Head {
            node_key: keys::node(name),
            node: name,
            id: &id,
            deadline_ms: deadline,
            stop_bound,
            message: format!("its pods are moved to other nodes{}", until.unwrap_or_default()),
        }
        .call();
        match word("draining a node", self.link.script(&call).await?)?.as_str() {
            "OK" => Ok(true),
            "MISSING" => Ok(false),
            other => Err(unexpected("draining a node", other)),
        }
    }

    /// # Errors
    /// Broken keys cause none.
    pub async fn drains(&self) -> Result<Vec<(NodeName, Drain)>, StoreError> {
        let names = self.node_names().await?;
        let parse = |name: &NodeName, reply: Value| {
            let text: Option<String> = read("reading the drain of a node", reply)?;
            Ok(text.and_then(|text| Drain::from_stored(&text)).map(|drain| (name.clone(), drain)))
        };
        Ok(self.load(&names, |name| field(keys::node(name), "drain"), parse).await?.found())
    }

    /// Returns false if it was said before, or the order is another one.
    pub async fn note_drain(
        &self,
        name: &NodeName,
        drain: &Drain,
        news: DrainNews<'_>,
    ) -> Result<bool, StoreError> {
        let (reason, message) = match news {
            DrainNews::Drained => ("NodeDrained", "no pod is left on it"),
            DrainNews::PastDeadline(what) => ("DrainDeadline", what),
        };
        let call =
            node_drained::Head { node_key: keys::node(name), node: name, id: &drain.id[..], reason, message }
                .call();
        Ok(word("noting how far a drain is", self.link.script(&call).await?)? == "OK")
    }

    /// `news` tells which begin, if any. Returns false if the service has changed since it was read.
    pub async fn put_moves(
        &self,
        service: &Service,
        moves: &Moves,
        news: Option<&str>,
    ) -> Result<bool, StoreError> {
        let call = moves_put::Head {
            service_key: keys::service(&service.name),
            service: &service.name,
            seen_moves: service.moves.as_stored(),
            moves: moves.as_stored(),
            message: news.unwrap_or_default(),
        }
        .call();
        Ok(word("storing the moves of a service", self.link.script(&call).await?)? == "OK")
    }
}

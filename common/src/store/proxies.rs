//! The proxies of the hosts: where each takes connections from the others.

use redis::cmd;

use super::keys::{self, channel};
use super::reply::RawFields;
use super::{Store, StoreError};
use crate::ids::NodeName;

impl Store {
    /// Returns what the proxy of each node has announced.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn proxies(&self) -> Result<Vec<(NodeName, String)>, StoreError> {
        let fields: RawFields = self.link.query(cmd("HGETALL").arg(keys::PROXIES)).await?;
        let proxy = |(node, line): (Vec<u8>, Vec<u8>)| {
            Some((NodeName::new(String::from_utf8(node).ok()?).ok()?, String::from_utf8(line).ok()?))
        };
        Ok(fields.into_iter().filter_map(proxy).collect())
    }

    /// Announces the proxy of these nodes to the others. Repeating it changes nothing.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn announce_proxy(&self, nodes: &[NodeName], line: &str) -> Result<(), StoreError> {
        let mut pipe = redis::pipe();
        for node in nodes {
            pipe.cmd("HSET").arg(keys::PROXIES).arg(node.as_str()).arg(line).ignore();
        }
        pipe.cmd("PUBLISH").arg(channel::PROXIES).arg("").ignore();
        self.link.pipeline(&pipe).await
    }

    /// Forgets the proxies of these nodes: the others take no connections from them any more.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn forget_proxies(&self, nodes: &[NodeName]) -> Result<(), StoreError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let mut forget = cmd("HDEL");
        forget.arg(keys::PROXIES).arg(nodes.iter().map(NodeName::as_str).collect::<Vec<_>>());
        self.link.query(&forget).await
    }
}

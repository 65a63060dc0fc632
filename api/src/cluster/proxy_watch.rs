//! Watches for proxies that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::NodeName;
use parking_lot::Mutex;
use store::{ObservedCondition, ProxySign, Store, StoreError};
use tokio_util::sync::CancellationToken;

/// A proxy's sign of life lasts longer.
const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ProxyWatch {
    /// Seen alive by this process, and announced still.
    seen: Mutex<BTreeSet<NodeName>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProxySigns {
    pub(crate) alive: BTreeSet<NodeName>,
    pub(crate) away: BTreeSet<NodeName>,
    pub(crate) secret_keys: BTreeMap<NodeName, String>,
}

impl ProxyWatch {
    /// A proxy is missed only if it was seen before.
    pub(crate) async fn run(&self, store: Store, shutdown: CancellationToken) {
        let look = async {
            let mut told = ToldProxies::default();
            loop {
                let told = match self.read(&store).await {
                    Ok(signs) => told.tell(&store, &signs).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = told {
                    tracing::debug!(%error, "the proxies cannot be read, or their events not be written");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        shutdown.run_until_cancelled(look).await;
    }

    pub(crate) async fn read(&self, store: &Store) -> Result<ProxySigns, StoreError> {
        Ok(self.judge(store.proxy_signs().await?))
    }

    fn judge(&self, signs: Vec<ProxySign>) -> ProxySigns {
        let mut seen = self.seen.lock();
        let key = |sign: &ProxySign| Some((sign.node.clone(), sign.secret_key.clone()?));
        let secret_keys = signs.iter().filter_map(key).collect();
        let (alive, silent): (Vec<_>, Vec<_>) = signs.into_iter().partition(|sign| sign.is_alive);
        let nodes = |signs: Vec<ProxySign>| signs.into_iter().map(|sign| sign.node).collect::<BTreeSet<_>>();
        let (alive, silent) = (nodes(alive), nodes(silent));
        // One that is not announced any more was removed by an operator, or its node has been dead for long.
        seen.retain(|node| silent.contains(node));
        seen.extend(alive.iter().cloned());
        ProxySigns { away: silent.intersection(&seen).cloned().collect(), alive, secret_keys }
    }
}

#[derive(Default)]
struct ToldProxies {
    suspects: BTreeSet<NodeName>,
    /// True if the latest event says that the proxy is gone.
    told: BTreeMap<NodeName, bool>,
}

impl ToldProxies {
    /// A proxy is gone if it is away at two consecutive reads while Redis accepts writes: otherwise no proxy
    /// can show a sign of life.
    async fn tell(&mut self, store: &Store, signs: &ProxySigns) -> Result<(), StoreError> {
        let suspects = std::mem::take(&mut self.suspects);
        // A write: it fails while Redis takes none, and then no proxy is suspected at the next read.
        if signs.away.iter().any(|node| self.told.get(node) != Some(&true)) {
            store.lease("proxy_watch", &"api", INTERVAL).await?;
        }
        self.suspects = signs.away.clone();
        let gone = signs.away.intersection(&suspects).map(|node| (node, true));
        for (node, is_on) in gone.chain(signs.alive.iter().map(|node| (node, false))) {
            if self.told.get(node) == Some(&is_on) {
                continue;
            }
            let message = match is_on {
                true => format!(
                    "the proxy of {node} shows no sign of life: requests that enter there, and those of its pods to other services, \
                     fail; look at `kubeleet proxy` there"
                ),
                false => "its proxy shows again that it lives".to_owned(),
            };
            store.note_condition(ObservedCondition::ProxyGone { node, is_on }, &message).await?;
            self.told.insert(node.clone(), is_on);
        }
        self.told.retain(|node, _| signs.away.contains(node) || signs.alive.contains(node));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_proxy_is_missed_once_it_was_seen_and_until_it_is_back_or_removed() {
        let watch = ProxyWatch::default();
        let name = |text: &str| NodeName::new(text).unwrap();
        let away = |signs: &[(&str, bool)]| {
            let sign = |(node, is_alive): &(&str, bool)| ProxySign {
                node: name(node),
                is_alive: *is_alive,
                secret_key: None,
            };
            let signs = signs.iter().map(sign).collect();
            watch.judge(signs).away.into_iter().map(|node| node.to_string()).collect::<Vec<_>>()
        };
        assert!(away(&[("w1", true), ("old", false)]).is_empty(), "one that was never seen is not missed");
        assert_eq!(away(&[("w1", false), ("old", false)]), ["w1"]);
        assert_eq!(away(&[("w1", false)]), ["w1"], "until it is back");
        assert!(away(&[("w1", true)]).is_empty());
        assert!(away(&[]).is_empty(), "removed");
        assert!(away(&[("w1", false)]).is_empty());
    }
}

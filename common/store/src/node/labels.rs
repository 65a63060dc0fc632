//! Labels that an operator gives a node.

use redis::Value;
use serde::de::DeserializeOwned;

use crate::json::to_json;
use crate::loaded::{field, fields};
use crate::reply::{corrupt, read, unexpected, word};
use crate::scripts::node_label;
use crate::{Store, StoreError, keys};
use model::ids::NodeName;
use model::node::labels::{self, LabelChange, OwnLabels};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelNodeOutcome {
    Relabelled,
    Same,
    Missing,
    /// It would have more than [`labels::MAX_LABELS`].
    Full,
}

impl Store {
    /// In `changes`, `None` removes a label.
    pub async fn label_node(
        &self,
        name: &NodeName,
        changes: &OwnLabels,
    ) -> Result<LabelNodeOutcome, StoreError> {
        let what = "labelling a node";
        loop {
            let stored = fields(keys::node(name), &["state", "labels", "own_labels"]);
            let [state, seen_labels, seen_own]: [Option<Vec<u8>>; 3] = self.link.query(&stored).await?;
            if state.is_none() {
                return Ok(LabelNodeOutcome::Missing);
            }
            let (seen_labels, seen_own) = (seen_labels.unwrap_or_default(), seen_own.unwrap_or_default());
            let (registered, own) = (parse(what, &seen_labels)?, parse(what, &seen_own)?);
            let (own, message) = match labels::change(&registered, &own, changes) {
                LabelChange::Same => return Ok(LabelNodeOutcome::Same),
                LabelChange::Full => return Ok(LabelNodeOutcome::Full),
                LabelChange::To { own, message } => (own, message),
            };
            let call = node_label::Head {
                node_key: keys::node(name),
                node: name,
                seen_labels: &seen_labels[..],
                seen_own_labels: &seen_own[..],
                own_labels: to_json(&own),
                message,
            }
            .call();
            match word(what, self.link.script(&call).await?)?.as_str() {
                "OK" => return Ok(LabelNodeOutcome::Relabelled),
                "MISSING" => return Ok(LabelNodeOutcome::Missing),
                "CHANGED" => {}
                other => return Err(unexpected(what, other)),
            }
        }
    }

    /// `None` also if they are unreadable.
    pub async fn own_labels(&self, name: &NodeName) -> Result<Option<OwnLabels>, StoreError> {
        let what = "reading the labels of a node";
        let read_own = |_: &NodeName, value: Value| {
            let text: Option<Vec<u8>> = read(what, value)?;
            text.map(|text| parse(what, &text)).transpose()
        };
        let names = std::slice::from_ref(name);
        let loaded = self.load(names, |name| field(keys::node(name), "own_labels"), read_own).await?;
        Ok(loaded.found().pop())
    }
}

/// Empty text is the default.
fn parse<T: DeserializeOwned + Default>(what: &str, text: &[u8]) -> Result<T, StoreError> {
    match text {
        [] => Ok(T::default()),
        text => serde_json::from_slice(text).map_err(|error| corrupt(what, error)),
    }
}

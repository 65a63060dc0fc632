//! Filters of the engine's lists.

use std::collections::HashMap;

use model::ids::NodeName;

use crate::label;

pub(super) fn label_filters(node: &NodeName) -> HashMap<String, Vec<String>> {
    let labels = vec![format!("{}=kubeleet", label::ORCHESTRATOR), format!("{}={node}", label::NODE)];
    HashMap::from([("label".to_owned(), labels)])
}

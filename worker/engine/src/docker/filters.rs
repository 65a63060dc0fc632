//! Filters of lists that an engine is asked for.

use std::collections::HashMap;

use model::ids::NodeName;

use crate::label;

/// Returns the filters for what has the labels of a node.
pub(super) fn label_filters(node: &NodeName) -> HashMap<String, Vec<String>> {
    let labels = vec![format!("{}=kubeleet", label::ORCHESTRATOR), format!("{}={node}", label::NODE)];
    HashMap::from([("label".to_owned(), labels)])
}

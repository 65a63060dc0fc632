//! The nodes of a snapshot by their value of a label: nodes with the same value are one domain.
//!
//! Tests: tests, tests::related

use std::collections::HashMap;

use model::spec::domain_of;

use super::ClusterSnapshot;

impl ClusterSnapshot {
    /// `key` is a label, or `node.hostname`. Returns the domain of each node by its index, `None` without the
    /// label; and the value of each domain, in the order of its first node.
    pub(crate) fn domains(&self, key: &str) -> (Vec<Option<u32>>, Vec<&str>) {
        let (mut of_nodes, mut names) = (vec![None; self.len()], Vec::new());
        let mut by_name: HashMap<&str, u32> = HashMap::new();
        for (index, _, node) in self.by_name() {
            let Some(name) = domain_of(key, &node.name, &node.facts.labels) else { continue };
            of_nodes[index as usize] = Some(*by_name.entry(name).or_insert_with(|| {
                names.push(name);
                (names.len() - 1) as u32
            }));
        }
        (of_nodes, names)
    }
}

//! Rows of a growing table: `-w` prints a row for each change.

use std::collections::HashMap;

use crate::table_row::TableRow;

pub struct ChangedRows<T> {
    last: HashMap<String, T>,
    /// Later rows align with earlier ones.
    pub(crate) widths: Vec<usize>,
}

impl<T> Default for ChangedRows<T> {
    fn default() -> Self {
        Self { last: HashMap::new(), widths: Vec::new() }
    }
}

impl<T: TableRow + PartialEq + Clone> ChangedRows<T> {
    /// Forgets missing items.
    pub fn changed(&mut self, items: Vec<T>) -> Vec<T> {
        let is_changed = |item: &&T| self.last.get(&item.unique_name()) != Some(&item.watched());
        let changed = items.iter().filter(is_changed).cloned().collect();
        self.last = items.into_iter().map(|item| (item.unique_name(), item.watched())).collect();
        changed
    }
}

//! The rows of a table that grows: `ps -w` prints a row for each change.

use std::collections::HashMap;

use super::TableRow;

/// The last state of each row, and the widths of the columns so far.
pub(crate) struct ChangedRows<T> {
    last: HashMap<String, T>,
    widths: Vec<usize>,
}

impl<T: TableRow + PartialEq + Clone> ChangedRows<T> {
    /// Starts without rows.
    pub(crate) fn new() -> Self {
        Self { last: HashMap::new(), widths: Vec::new() }
    }

    /// Returns the items that are new or different, and forgets those that are gone.
    pub(crate) fn changed(&mut self, items: Vec<T>) -> Vec<T> {
        let is_changed = |item: &&T| self.last.get(&item.unique_name()) != Some(*item);
        let changed = items.iter().filter(is_changed).cloned().collect();
        self.last = items.into_iter().map(|item| (item.unique_name(), item)).collect();
        changed
    }

    /// Pads the first cells, so that they stand below the cells of the rows before.
    pub(super) fn align(&mut self, rows: &mut [Vec<String>]) {
        for row in &*rows {
            self.widths.resize(self.widths.len().max(row.len()), 0);
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in rows {
            for (cell, width) in row.iter_mut().zip(&self.widths) {
                let missing = width.saturating_sub(cell.chars().count());
                cell.push_str(&" ".repeat(missing));
            }
        }
    }
}

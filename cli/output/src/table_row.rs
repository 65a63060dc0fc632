//! Objects as rows of a table.

use jiff::Timestamp;
use serde::Serialize;

/// An object that is a row of a table.
pub trait TableRow: Serialize {
    /// Returns the column titles. Those of `wide` follow the usual ones.
    fn titles(wide: bool) -> Vec<&'static str>;
    /// Returns the cells below the titles.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;
    /// Returns `type/name`, which `-o name` prints and commands accept.
    fn name(&self) -> String;
    /// Returns what `--quiet` prints: the name without the type; of pods, the uuid.
    fn id(&self) -> String {
        let name = self.unique_name();
        name.split_once('/').map_or(name.clone(), |(_, id)| id.to_owned())
    }
    /// Returns `type/name` where two objects of a list have the same name.
    fn unique_name(&self) -> String {
        self.name()
    }
    /// Returns what must differ for a new row when a list is watched: all but what always changes.
    fn watched(&self) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

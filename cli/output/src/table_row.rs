//! Objects as rows of a table.

use jiff::Timestamp;
use serde::Serialize;

/// An object that is a row of a table.
pub trait TableRow: Serialize {
    /// Returns the column titles. Titles of `wide` follow the usual ones.
    fn titles(wide: bool) -> Vec<&'static str>;
    /// Returns the cells below the titles.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;
    /// Returns `type/name`, which `-o name` prints and commands accept.
    fn name(&self) -> String;
    /// Returns the `--quiet` output: the name without the type; for pods, the uuid.
    fn id(&self) -> String {
        let name = self.unique_name();
        name.split_once('/').map_or(name.clone(), |(_, id)| id.to_owned())
    }
    /// Returns a distinct `type/name` if two objects of a list share a name.
    fn unique_name(&self) -> String {
        self.name()
    }
    /// Returns the part whose change adds a row to a watched list: everything except constantly changing
    /// fields.
    fn watched(&self) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

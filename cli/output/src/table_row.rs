//! Objects as rows of a table.

use jiff::Timestamp;
use serde::Serialize;

/// Titles of columns.
pub type Titles = &'static [&'static str];

/// An object that is a row of a table.
pub trait TableRow: Serialize {
    /// Titles of the columns.
    const TITLES: Titles;
    /// Titles of the columns that follow with `-o wide`.
    const WIDE_TITLES: Titles = &[];
    /// Returns the cells of all columns. With `wide` they may be longer.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;
    /// Returns the titles of the columns that are shown.
    fn titles(wide: bool) -> Vec<&'static str> {
        [Self::TITLES, if wide { Self::WIDE_TITLES } else { &[] }].concat()
    }
    /// Returns the cells of the columns that are shown.
    fn row(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let mut cells = self.cells(wide, now);
        cells.truncate(Self::titles(wide).len());
        cells
    }
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

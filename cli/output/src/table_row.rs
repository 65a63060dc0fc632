//! Objects as rows of a table.

use jiff::Timestamp;
use serde::Serialize;

pub type Titles = &'static [&'static str];

pub trait TableRow: Serialize {
    const TITLES: Titles;
    /// They follow with `-o wide`.
    const WIDE_TITLES: Titles = &[];
    /// The cells of all columns. With `wide` they may be longer.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;
    fn titles(wide: bool) -> Vec<&'static str> {
        [Self::TITLES, if wide { Self::WIDE_TITLES } else { &[] }].concat()
    }
    fn row(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let mut cells = self.cells(wide, now);
        cells.truncate(Self::titles(wide).len());
        cells
    }
    /// `type/name`, which `-o name` prints and commands accept.
    fn name(&self) -> String;
    /// The `--quiet` output: the name without the type; for pods, the uuid.
    fn id(&self) -> String {
        let name = self.unique_name();
        name.split_once('/').map_or(name.clone(), |(_, id)| id.to_owned())
    }
    /// Distinct if two objects of a list share a name.
    fn unique_name(&self) -> String {
        self.name()
    }
    /// A change of this part adds a row to a watched list.
    fn watched(&self) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

//! Ways to choose a node.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    Random,
    Pack,
    Fragmentation,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Random => "random",
            Self::Pack => "pack (best fit)",
            Self::Fragmentation => "fragmentation",
        })
    }
}

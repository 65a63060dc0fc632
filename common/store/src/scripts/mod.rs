//! The Lua scripts, compiled in: one file per atomic operation under `lua/`.
//!
//! [`table`] declares each script's keys and arguments. They generate the structs that build a call here, and
//! the functions that read it in the script ([`readers`]). A test compares the names on both sides.

mod prelude;
mod readers;
mod script;
mod table;
#[cfg(test)]
mod tests;

pub use prelude::Prelude;
pub use script::{Arguments, AtMaxmemory, NamedArguments, PRELUDE, ProcessKind, Script};
pub(crate) use script::{Call, distinct};
pub use table::SCRIPTS;
pub(crate) use table::*;

//! The Lua scripts, compiled in: one file per atomic operation under `lua/`.
//!
//! [`table`] declares what each script is called with: the names of its keys and arguments, in their order.
//! From that come the structs that a call is built from here, and the functions that a script reads its call
//! with ([`readers`]). A test compares the names on both sides.

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
